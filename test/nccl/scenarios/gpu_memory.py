#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch over rails that reach GPU memory: sizes, LL128, a cut; DMA-BUF and peer memory.

The fabric's rails reach GPU memory (FABRIC_GPU=1), the plugin finds that out by trying, and NCCL
sends from and receives into it. By DMA-BUF, where the driver exports one, and by a made-up peer
memory module."""

import os
import sys

import _run

LIMIT_S = 200
RANKS = 2
SIZES = "8,4096,1048580,67108864"
CUT = f"2:cut host=0 rail={_run.FAILED_RAIL} bytes=20000000"
CASES = [("sizes", ["--sizes", SIZES], {}),
         ("LL128", ["--sizes", SIZES], {"NCCL_PROTO": "LL128"}),
         ("a rail cut", ["--sizes", "67108864", "--repeat", "6", "--rule", CUT], {})]


def options(parser):
    parser.add_argument("--ways", default="DMA-BUF,peer memory")
    parser.add_argument("--cases", default="0,1,2", help="which of " +
                        ", ".join(name for name, _, _ in CASES))
    parser.add_argument("--wait-in-driver", action="store_true",
                        help="let ranks block in the driver, which stops the fabric's copies")


def peer_memory(folder):
    """Made-up hosts whose kernel has a peer memory module; their rails are no PCI devices."""
    for host in range(RANKS):
        place = os.path.join(folder, "fabric", f"sys-{host:02}", "module", "nvidia_peermem")
        os.makedirs(place)
        with open(os.path.join(place, "version"), "w") as stream:
            stream.write("made up\n")
    with open(os.path.join(folder, "hosts.topo"), "w") as stream:
        stream.writelines(f"device fab{rail}\n" for rail in range(_run.RAILS))


def one(args, way, number):
    name, given, extra = CASES[number]
    env = {"FABRIC_GPU": "1", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_NET_GDR_READ": "1",
           "NCCL_NET_FORCE_FLUSH": "1", **extra}

    def prepare(folder):
        if way == "peer memory":
            peer_memory(folder)
            env["FABRIC_TOPO"] = os.path.join(folder, "hosts.topo")
            env["LD_PRELOAD"] = os.path.join(args.build, "fabric", "libfabric_sysfs.so")
            env["NCCL_DMABUF_ENABLE"] = "0"

    if args.wait_in_driver:
        given = given + ["--wait-in-driver"]
    result = _run.run(args, "braid", "_allreduce.py", given, 45, ranks=RANKS, per_host=1, env=env,
                      prepare=prepare)
    print(f"{way}, {name}: exit codes {result['codes']}, {len(_run.steps(result))} steps, "
          f"{result['seconds']:.0f} s", flush=True)
    return name, result


def judge(way, name, result):
    """Right, and by the way it is meant to go."""
    via = [line for line in result["log"].splitlines() if "via NET/Braid" in line]
    direct = sum("GDRDMA" in line for line in via)
    elements = sum(s.get("elements", 0) for lines in result["ranks"] for s in lines)
    ok = (_run.is_clean(result) and _run.wrong(result) == 0 and elements > 0 and
          f"GPU ({way})" in result["log"] and 0 < direct == len(via))
    if "cut" in name:
        ok = ok and _run.replayed(result) > 0 and len(result["fired"]) > 0
    return ok, [way, name, elements, _run.wrong(result), f"{direct} of {len(via)}",
                f"{_run.replayed(result) / 1e6:.1f}", "ok" if ok else "FAILED"]


def body(args):
    rows, oks = [], []
    for way in args.ways.split(","):
        for number in (int(text) for text in args.cases.split(",")):
            ok, row = judge(way, *one(args, way, number))
            rows.append(row)
            oks.append(ok)
    summary = (f"{sum(row[3] for row in rows)} of {sum(row[2] for row in rows)} elements wrong, "
               f"{sum(oks)} of {len(oks)} runs as meant")
    table = {"title": f"PyTorch all-reduce in GPU memory, {RANKS} ranks, {_run.RAILS} rails",
             "columns": ["registered by", "what", "elements", "wrong", "connections direct",
                         "MB sent again", ""], "rows": rows}
    return _run.report(args, all(oks), summary, [table])


if __name__ == "__main__":
    sys.exit(_run.main(__doc__, body, sys.argv[1:], options))
