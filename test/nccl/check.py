#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified NCCL over the software fabric: Braid healthy, Braid with a rail cut in mid-collective,
and the same cut on NCCL's built-in IB transport. Run it through scripts/nccl-check."""

import argparse
import glob
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv")
SIZES = "8,1024,65536,1048576,16777216,134217728,1073741824"
CUT_SIZE = 268435456
CUT_REPEAT = 4
CUT_STEP = 1
RAIL_CUT = 1


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def rank_env(args, net, rank, folder, port):
    env = dict(os.environ)
    libs = [os.path.join(args.build, "fabric"), args.build, env.get("LD_LIBRARY_PATH", "")]
    env.update({
        "RANK": str(rank), "WORLD_SIZE": str(args.ranks), "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "NCCL_HOSTID": f"braid-check-{rank}", "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_NVLS_ENABLE": "0", "NCCL_IB_DISABLE": "0",
        "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "INFO"), "NCCL_DEBUG_SUBSYS": os.environ.get("NCCL_DEBUG_SUBSYS", "INIT,NET"),
        "LD_LIBRARY_PATH": ":".join(part for part in libs if part),
        "FABRIC_DIR": os.path.join(folder, "fabric"), "FABRIC_HOST": str(rank),
        "FABRIC_RAILS": str(args.rails), "FABRIC_RATE_MBPS": str(args.rate),
        "BRAID_EVENT_FILE": os.path.join(folder, "events.%h.%p.jsonl"),
    })
    if net == "braid":
        env.update({"NCCL_NET_PLUGIN": "braid", "NCCL_NET": "Braid"})
    else:
        # GIN probing of 2.28 crashes on devices that are not mlx5; timeouts as Braid's own.
        env.update({"NCCL_NET_PLUGIN": "none", "NCCL_NET": "IB", "NCCL_GIN_TYPE": "2",
                    "NCCL_IB_MERGE_NICS": os.environ.get("NCCL_IB_MERGE_NICS", "0"), "NCCL_IB_TIMEOUT": "14", "NCCL_IB_RETRY_CNT": "6",
                    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"})
    return env


def run_ranks(args, net, extra, limit_s):
    """Start the ranks, wait bounded. Gives steps, exit codes, events, log text, seconds."""
    folder = tempfile.mkdtemp(prefix="braid-nccl-")
    os.mkdir(os.path.join(folder, "fabric"))
    port, ranks, start = free_port(), [], time.monotonic()
    for rank in range(args.ranks):
        out = open(os.path.join(folder, f"out.{rank}"), "w+")
        err = open(os.path.join(folder, f"err.{rank}"), "w+")
        ranks.append((subprocess.Popen(
            [sys.executable, os.path.join(HERE, "rank.py"), "--fabricctl",
             os.path.join(args.build, "fabric", "fabricctl")] + extra,
            env=rank_env(args, net, rank, folder, port), stdout=out, stderr=err), out, err))
    codes = []
    for proc, _, _ in ranks:
        try:
            codes.append(proc.wait(max(limit_s - (time.monotonic() - start), 0.1)))
        except subprocess.TimeoutExpired:
            codes.append("timeout")
        # One rank gone for good: the others need not sit out their watchdog.
    for proc, _, _ in ranks:
        if proc.poll() is None:
            proc.kill()
            proc.wait()
    result = collect(folder, ranks, codes)
    result["seconds"] = time.monotonic() - start
    if args.keep:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def collect(folder, ranks, codes):
    steps, log, events = [], "", []
    for _, out, err in ranks:
        for stream in (out, err):
            stream.seek(0)
        text = out.read()
        for line in text.splitlines():
            if line.startswith('{"rank"'):
                steps.append(json.loads(line))
        log += text + err.read()
        out.close()
        err.close()
    for path in glob.glob(os.path.join(folder, "events.*.jsonl")):
        with open(path) as stream:
            events += [json.loads(line) for line in stream if line.strip()]
    fired = os.path.join(folder, "fabric", "fired.log")
    fault_fired = os.path.exists(fired) and os.path.getsize(fired) > 0
    return {"codes": codes, "steps": steps, "events": events, "log": log, "fired": fault_fired}


def cut_args(op):
    rule = f"cut host=0 rail={RAIL_CUT} bytes=5000000"
    return ["--ops", op, "--sizes", str(CUT_SIZE), "--repeat", str(CUT_REPEAT),
            "--fault", rule, "--fault-step", str(CUT_STEP)]


def wrong_of(result):
    return sum(step["wrong"] for step in result["steps"])


def using(result):
    for line in result["log"].splitlines():
        if "Using network" in line:
            return line.split("Using network")[1].strip()
    return "?"


def seconds(result, op, size, pick):
    times = [s["seconds"] for s in result["steps"] if s["op"] == op and s["bytes"] == size]
    return pick(times) if times else float("nan")


def show_log(title, result):
    print(f"--- {title}: last lines")
    print("\n".join(result["log"].splitlines()[-40:]))


def check_healthy(args, report):
    result = run_ranks(args, "braid", ["--sizes", args.sizes], args.limit)
    ok = (all(code == 0 for code in result["codes"]) and wrong_of(result) == 0 and
          using(result) == "Braid")
    report["healthy"] = {"ok": ok, "network": using(result), "wrong": wrong_of(result),
                         "steps": result["steps"]}
    if not ok:
        show_log("healthy run", result)
    return result, ok


def check_cut(args, op, report):
    result = run_ranks(args, "braid", cut_args(op), args.limit)
    downs = [e for e in result["events"] if e.get("event") == "path_down"]
    replayed = sum(e.get("bytes_replayed", 0) for e in downs)
    steps = len([s for s in result["steps"] if s["rank"] == 0])
    ok = (all(code == 0 for code in result["codes"]) and wrong_of(result) == 0 and
          result["fired"] and len(downs) > 0 and replayed > 0 and steps == CUT_REPEAT)
    pause = max((s["seconds"] for s in result["steps"] if s["step"] == CUT_STEP), default=0)
    usual = min((s["seconds"] for s in result["steps"] if s["step"] > CUT_STEP), default=0)
    report["cut"][op] = {"ok": ok, "wrong": wrong_of(result), "fired": result["fired"],
                         "paths_down": len(downs), "bytes_replayed": replayed,
                         "step_seconds": pause, "after_seconds": usual}
    if not ok:
        show_log(f"{op} with a cut", result)
    return ok


def check_builtin(args, op, report):
    healthy = run_ranks(args, "ib", ["--ops", op, "--sizes", str(CUT_SIZE), "--repeat", "2"],
                        args.limit)
    healthy_ok = all(code == 0 for code in healthy["codes"]) and wrong_of(healthy) == 0
    result = run_ranks(args, "ib", cut_args(op) + ["--timeout", "20"], 60)
    failed = any(code != 0 for code in result["codes"]) and result["fired"]
    reason = next((line.split("NCCL WARN")[-1].strip() for line in result["log"].splitlines()
                   if "NCCL WARN" in line and "error" in line.lower()), "")
    report["builtin"][op] = {"healthy_ok": healthy_ok, "network": using(healthy),
                             "failed_under_cut": failed, "reason": reason[:160],
                             "healthy_seconds": seconds(healthy, op, CUT_SIZE, min),
                             "codes": [str(code) for code in result["codes"]]}
    if not healthy_ok:
        show_log(f"built-in IB, healthy {op}", healthy)
    return healthy_ok and failed


def print_table(args, report):
    sizes = len(args.sizes.split(","))
    print(f"\n{args.ranks} ranks as {args.ranks} hosts, {args.rails} rails each; "
          f"network: {report['healthy']['network']}; cut: rail {RAIL_CUT} of host 0, "
          f"5 MB into a collective of {CUT_SIZE >> 20} MiB\n")
    print("| operation | Braid, healthy, 8 B to 1 GiB | Braid, rail cut | replayed | step with the cut "
          "/ after | built-in IB, same cut |")
    print("|---|---|---|---|---|---|")
    for op in args.ops.split(","):
        wrong = sum(s["wrong"] for s in report["healthy"]["steps"] if s["op"] == op)
        elements = sum(s["elements"] for s in report["healthy"]["steps"] if s["op"] == op)
        cut = report["cut"].get(op, {})
        ib = report["builtin"].get(op)
        ib_text = "not run" if ib is None else ("job fails" if ib["failed_under_cut"] else "survives")
        print(f"| {op} | {wrong} of {elements} elements wrong, {sizes} sizes "
              f"| {cut.get('wrong', '?')} wrong, job goes on: {'yes' if cut.get('ok') else 'NO'} "
              f"| {cut.get('bytes_replayed', 0)} B "
              f"| {cut.get('step_seconds', 0):.2f} s / {cut.get('after_seconds', 0):.2f} s "
              f"| {ib_text} |")


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, help="folder with the plugin and fabric/")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rails", type=int, default=4)
    parser.add_argument("--rate", type=int, default=0, help="MB/s per rail, 0: unlimited")
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--builtin-ops", default="all_reduce",
                        help="operations repeated on NCCL's built-in IB, or none")
    parser.add_argument("--limit", type=int, default=180, help="seconds per run")
    parser.add_argument("--json", default="")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the runs")
    return parser.parse_args(argv)


def main(argv):
    args = parse(argv)
    report = {"cut": {}, "builtin": {}}
    print(f"healthy: {args.ops} at {args.sizes} bytes", flush=True)
    _, ok = check_healthy(args, report)
    for op in args.ops.split(","):
        print(f"cut in mid-collective: {op}", flush=True)
        ok = check_cut(args, op, report) and ok
    for op in (args.builtin_ops.split(",") if args.builtin_ops != "none" else ()):
        print(f"the same cut on NCCL's built-in IB: {op}", flush=True)
        ok = check_builtin(args, op, report) and ok
    print_table(args, report)
    if args.json:
        with open(args.json, "w") as stream:
            json.dump(report, stream, indent=1)
    print(f"\nverdict: {'every element right, every cut survived' if ok else 'FAILED'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
