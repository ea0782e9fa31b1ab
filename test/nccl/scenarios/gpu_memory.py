#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NCCL straight from and into GPU memory: registration, flush through every rail, each protocol, faults.

The fabric's rails reach GPU memory (FABRIC_GPU=1), the plugin finds that out by trying, and NCCL uses it
for all data. By peer memory module and by DMA-BUF, where the driver exports one."""

import os
import sys

import _run

LIMIT_S = 240
RAILS = 3
RANKS = 2
SIZES = "8,4096,1048580,67108864"
CUT = "cut host=0 rail=1 bytes=20000000"


def peer_memory(folder):
    """Made-up hosts whose kernel has a peer memory module."""
    for host in range(RANKS):
        place = os.path.join(folder, "fabric", f"sys-{host:02}", "module", "nvidia_peermem")
        os.makedirs(place)
        with open(os.path.join(place, "version"), "w") as stream:
            stream.write("made up\n")
    with open(os.path.join(folder, "hosts.topo"), "w") as stream:
        for rail in range(RAILS):
            stream.write(f"device fab{rail}\n")


def gdr_env(args, way, folder_env):
    env = {"FABRIC_GPU": "1", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_NET_GDR_READ": "1",
           "NCCL_NET_FORCE_FLUSH": "1", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH"}
    if way == "peermem":
        env["LD_PRELOAD"] = os.path.join(args.build, "fabric", "libfabric_sysfs.so")
        env["NCCL_DMABUF_ENABLE"] = "0"
    env.update(folder_env)
    return env


def start(args, way, options, env, limit_s):
    """A job whose topology file lies in its own folder."""
    told = {}

    def prepare(folder):
        if way == "peermem":
            peer_memory(folder)
            told["FABRIC_TOPO"] = os.path.join(folder, "hosts.topo")
        env.update(told)

    return _run.run(args, "braid", "_collectives.py", options, limit_s, ranks=RANKS, per_host=1,
                    rails=RAILS, env=env, prepare=prepare)


def direct(result):
    """Connections that NCCL made straight from or to GPU memory, and others."""
    vias = [line for line in result["log"].splitlines() if "via NET/Braid" in line]
    return sum("GDRDMA" in line for line in vias), sum("GDRDMA" not in line for line in vias)


def one(args, way, name, options, extra, limit_s=60):
    result = start(args, way, options, gdr_env(args, way, extra), limit_s)
    gdr, other = direct(result)
    print(f"{way}, {name}: exit codes {result['codes']}, {len(_run.steps(result))} steps, "
          f"{_run.wrong(result)} wrong, {gdr} connections direct, {other} not, "
          f"{result['seconds']:.0f} s", flush=True)
    ok = (_run.is_clean(result) and _run.wrong(result) == 0 and _run.uses(result, "Braid") and
          gdr > 0 and other == 0)
    return result, ok


def cases():
    ops = "all_reduce,all_gather,reduce_scatter,broadcast,send_recv"
    every = ["--ops", ops, "--sizes", SIZES]
    cut = ["--ops", "all_reduce", "--sizes", "67108864", "--repeat", "8", "--rule", f"2:{CUT}"]
    return [("all operations", every, {}),
            ("LL128", ["--ops", "all_reduce", "--sizes", SIZES], {"NCCL_PROTO": "LL128"}),
            ("LL", ["--ops", "all_reduce", "--sizes", SIZES], {"NCCL_PROTO": "LL"}),
            ("Simple, a rail cut", cut, {"NCCL_PROTO": "Simple"}),
            ("LL128, a rail cut", cut, {"NCCL_PROTO": "LL128"})]


def ways(args):
    """How the plugin found that it may, on a first try without a made-up kernel module."""
    probe = start(args, "dmabuf", ["--ops", "all_reduce", "--sizes", "8"],
                  gdr_env(args, "dmabuf", {}), 60)
    found = ["peermem"]
    if "GPU (DMA-BUF)" in probe["log"]:
        found.append("dmabuf")
    else:
        print("the driver exports no DMA-BUF here: peer memory module only", flush=True)
    return found


def body(args):
    rows, all_ok, details = [], True, {}
    for way in ways(args):
        for name, options, extra in cases():
            result, ok = one(args, way, name, options, extra)
            if "cut" in name:
                ok = ok and _run.replayed(result) > 0 and len(result["fired"]) > 0
            all_ok = all_ok and ok
            gdr, other = direct(result)
            elements = sum(s.get("elements", 0) for lines in result["ranks"] for s in lines)
            rows.append([way, name, elements, _run.wrong(result), f"{gdr} / {other}",
                         f"{_run.replayed(result) / 1e6:.1f}", "ok" if ok else "FAILED"])
            details[f"{way} {name}"] = {"codes": [str(c) for c in result["codes"]],
                                        "warnings": _run.warnings_of(result)[-10:]}
    summary = f"{sum(row[3] for row in rows)} wrong elements of {sum(row[2] for row in rows)}"
    table = {"title": f"GPU memory, registered and sent from directly: {RANKS} ranks, {RAILS} rails",
             "columns": ["by", "what", "elements", "wrong", "connections direct / not",
                         "MB sent again", ""], "rows": rows}
    return _run.report(args, all_ok, summary, [table], details)


if __name__ == "__main__":
    sys.exit(_run.main(__doc__, body, sys.argv[1:]))
