#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified NCCL over the software fabric: Braid healthy, Braid with a rail cut in mid-collective,
a rail that is cut and comes back, and the same cut on NCCL's built-in IB transport, which must fail.
Run it through scripts/nccl-check."""

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
OPS = "all_reduce,all_gather,reduce_scatter,broadcast,send_recv"
SIZES = "8,1024,65536,1048576,16777216,134217728,1073741824"
RAIL = 1
CUT_SIZE = 268435456
CUT_STEPS = 4
CUT_STEP = 1
CUT_RULE = f"cut host=0 rail={RAIL} bytes=5000000"
BACK_STEPS = 120
BACK_STEP = 30


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def rank_env(args, net, rank, folder, port):
    env = dict(os.environ)
    libs = [os.path.join(args.build, "fabric"), args.build, env.get("LD_LIBRARY_PATH", "")]
    env.setdefault("NCCL_DEBUG", "INFO")
    env.setdefault("NCCL_DEBUG_SUBSYS", "INIT,NET")
    env.update({
        "RANK": str(rank), "WORLD_SIZE": str(args.ranks), "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "NCCL_HOSTID": f"braid-check-{rank}", "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_NVLS_ENABLE": "0", "NCCL_IB_DISABLE": "0",
        "LD_LIBRARY_PATH": ":".join(part for part in libs if part),
        "FABRIC_DIR": os.path.join(folder, "fabric"), "FABRIC_HOST": str(rank),
        "FABRIC_RAILS": str(args.rails), "FABRIC_RATE_MBPS": str(args.rate),
        "BRAID_EVENT_FILE": os.path.join(folder, "events.%h.%p.jsonl"),
    })
    if net == "braid":
        env.update({"NCCL_NET_PLUGIN": "braid", "NCCL_NET": "Braid"})
    else:
        # GIN probing of 2.28 crashes on devices that are not mlx5, and merging devices without a
        # PCI path loses them. Time-outs as Braid's own, so that the failure comes as soon.
        env.update({"NCCL_NET_PLUGIN": "none", "NCCL_NET": "IB", "NCCL_GIN_TYPE": "2",
                    "NCCL_IB_MERGE_NICS": "0", "NCCL_IB_TIMEOUT": "14", "NCCL_IB_RETRY_CNT": "6"})
    return env


def wait_all(procs, limit_s):
    """Exit codes, "timeout" where the limit ran out. A rank that failed ends the wait for the rest
    after a grace, as a job's launcher would."""
    deadline = time.monotonic() + limit_s
    while any(proc.poll() is None for proc in procs) and time.monotonic() < deadline:
        if any(proc.poll() not in (None, 0) for proc in procs):
            deadline = min(deadline, time.monotonic() + 5)
        time.sleep(0.05)
    codes = ["timeout" if proc.poll() is None else proc.returncode for proc in procs]
    for proc in procs:
        if proc.poll() is None:
            proc.kill()
        proc.wait()
    return codes


def run_ranks(args, net, extra, limit_s):
    """One job. Gives its steps, exit codes, events, log text, rail counters."""
    folder = tempfile.mkdtemp(prefix="braid-nccl-")
    os.mkdir(os.path.join(folder, "fabric"))
    port, procs = free_port(), []
    fabricctl = os.path.join(args.build, "fabric", "fabricctl")
    for rank in range(args.ranks):
        with open(os.path.join(folder, f"out.{rank}"), "w") as out, \
                open(os.path.join(folder, f"err.{rank}"), "w") as err:
            procs.append(subprocess.Popen(
                [sys.executable, os.path.join(HERE, "rank.py"), "--fabricctl", fabricctl] + extra,
                env=rank_env(args, net, rank, folder, port), stdout=out, stderr=err))
    codes = wait_all(procs, limit_s)
    result = collect(folder, args.ranks, codes)
    if args.keep:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def collect(folder, ranks, codes):
    steps, log, events = [], "", []
    for rank in range(ranks):
        with open(os.path.join(folder, f"out.{rank}")) as stream:
            text = stream.read()
        with open(os.path.join(folder, f"err.{rank}")) as stream:
            log += text + stream.read()
        steps += [json.loads(line) for line in text.splitlines() if line.startswith('{"rank"')]
    for path in glob.glob(os.path.join(folder, "events.*.jsonl")):
        with open(path) as stream:
            events += [json.loads(line) for line in stream if line.strip()]
    fired = os.path.join(folder, "fabric", "fired.log")
    return {"codes": codes, "steps": steps, "events": events, "log": log,
            "fired": os.path.exists(fired) and os.path.getsize(fired) > 0}


def wrong_of(result):
    return sum(step["wrong"] for step in result["steps"])


def is_clean(result):
    return all(code == 0 for code in result["codes"]) and wrong_of(result) == 0


def network_of(result):
    for line in result["log"].splitlines():
        if "Using network" in line:
            return line.split("Using network")[1].strip()
    return "?"


def count_events(result, kind):
    return sum(event.get("event") == kind for event in result["events"])


def step_times(result, first, last):
    return [s["seconds"] for s in result["steps"] if first <= s["step"] <= last and s["rank"] == 0]


def replayed_of(result):
    return sum(e.get("bytes_replayed", 0) for e in result["events"] if e.get("event") == "path_down")


def show_log(title, result):
    print(f"--- {title}: exit codes {result['codes']}, last lines")
    print("\n".join(result["log"].splitlines()[-40:]))


def check_healthy(args, report):
    result = run_ranks(args, "braid", ["--ops", args.ops, "--sizes", args.sizes], args.limit)
    ok = is_clean(result) and network_of(result) == "Braid"
    report["healthy"] = {"ok": ok, "network": network_of(result), "wrong": wrong_of(result),
                         "steps": result["steps"]}
    if not ok:
        show_log("healthy run", result)
    return ok


def cut_args(op):
    return ["--ops", op, "--sizes", str(CUT_SIZE), "--repeat", str(CUT_STEPS),
            "--rule", f"{CUT_STEP}:{CUT_RULE}"]


def check_cut(args, op, report):
    result = run_ranks(args, "braid", cut_args(op), args.limit)
    steps = len([s for s in result["steps"] if s["rank"] == 0])
    ok = (is_clean(result) and result["fired"] and count_events(result, "path_down") > 0 and
          replayed_of(result) > 0 and steps == CUT_STEPS)
    report["cut"][op] = {"ok": ok, "wrong": wrong_of(result), "fired": result["fired"],
                         "bytes_replayed": replayed_of(result),
                         "step_seconds": max(step_times(result, CUT_STEP, CUT_STEP), default=0),
                         "after_seconds": min(step_times(result, CUT_STEP + 1, CUT_STEPS),
                                              default=0)}
    if not ok:
        show_log(f"{op} with a cut", result)
    return ok


def check_back(args, report):
    """Cut, then mended: the rail must be used again by itself, with every element right."""
    result = run_ranks(args, "braid", ["--ops", "all_reduce", "--sizes", str(CUT_SIZE), "--repeat",
                                       str(BACK_STEPS), "--rule", f"{CUT_STEP}:{CUT_RULE}",
                                       "--rule", f"{BACK_STEP}:heal host=0 rail={RAIL}"],
                       args.limit)
    downs, ups = count_events(result, "path_down"), count_events(result, "path_up")
    ok = is_clean(result) and result["fired"] and downs > 0 and ups == downs
    report["back"] = {"ok": ok, "wrong": wrong_of(result), "paths_down": downs, "paths_up": ups}
    if not ok:
        show_log("cut and mended", result)
    return ok


def check_builtin(args, op, report):
    healthy = run_ranks(args, "ib", ["--ops", op, "--sizes", str(CUT_SIZE), "--repeat",
                                     str(CUT_STEPS)], args.limit)
    cut = run_ranks(args, "ib", cut_args(op) + ["--timeout", "20"], args.limit)
    failed = any(code != 0 for code in cut["codes"]) and cut["fired"]
    reason = next((line.split("NCCL WARN")[-1].strip() for line in cut["log"].splitlines()
                   if "NCCL WARN" in line and "completion" in line.lower()), "")
    report["builtin"][op] = {"healthy_ok": is_clean(healthy), "network": network_of(healthy),
                             "failed_under_cut": failed, "reason": reason[:160],
                             "codes": [str(code) for code in cut["codes"]]}
    if not is_clean(healthy):
        show_log(f"built-in IB, healthy {op}", healthy)
    return is_clean(healthy) and failed


def print_table(args, report):
    sizes = len(args.sizes.split(","))
    print(f"\n{args.ranks} ranks as {args.ranks} hosts, {args.rails} rails each; network "
          f"{report['healthy']['network']}; the cut: rail {RAIL} of host 0, 5 MB into a collective "
          f"of {CUT_SIZE >> 20} MiB\n")
    print("| operation | Braid, healthy | Braid, rail cut | sent again | the step with the cut, "
          "a step after it | built-in IB, same cut |")
    print("|---|---|---|---|---|---|")
    for op in args.ops.split(","):
        mine = [s for s in report["healthy"]["steps"] if s["op"] == op]
        cut, ib = report["cut"].get(op, {}), report["builtin"].get(op)
        fate = "not run"
        if ib is not None:
            fate = "job fails" if ib["failed_under_cut"] else "SURVIVES"
        print(f"| {op} | {sum(s['wrong'] for s in mine)} of {sum(s['elements'] for s in mine)} "
              f"elements wrong, {sizes} sizes | {cut.get('wrong', '?')} wrong, "
              f"{'job goes on' if cut.get('ok') else 'FAILED'} "
              f"| {cut.get('bytes_replayed', 0) / 1e6:.1f} MB "
              f"| {cut.get('step_seconds', 0):.2f} s, {cut.get('after_seconds', 0):.2f} s | {fate} |")
    if report.get("back"):
        back = report["back"]
        print(f"\ncut and mended: {back['wrong']} elements wrong, {back['paths_down']} path ends "
              f"went down, {back['paths_up']} came back")


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, help="folder with the plugin and fabric/")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rails", type=int, default=4)
    parser.add_argument("--rate", type=int, default=0, help="MB/s per rail, 0: unlimited")
    parser.add_argument("--ops", default=OPS)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--builtin-ops", default="all_reduce,send_recv",
                        help="operations repeated on NCCL's built-in IB, or none")
    parser.add_argument("--no-back", action="store_true", help="leave out the mended rail")
    parser.add_argument("--limit", type=int, default=180, help="seconds per run")
    parser.add_argument("--json", default="")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the runs")
    return parser.parse_args(argv)


def main(argv):
    args = parse(argv)
    report = {"cut": {}, "builtin": {}}
    print(f"healthy: {args.ops} at {args.sizes} bytes", flush=True)
    ok = check_healthy(args, report)
    for op in args.ops.split(","):
        print(f"cut in mid-collective: {op}", flush=True)
        ok = check_cut(args, op, report) and ok
    if not args.no_back:
        print("cut and mended: all_reduce", flush=True)
        ok = check_back(args, report) and ok
    for op in (args.builtin_ops.split(",") if args.builtin_ops != "none" else ()):
        print(f"the same cut on NCCL's built-in IB: {op}", flush=True)
        ok = check_builtin(args, op, report) and ok
    print_table(args, report)
    if args.json:
        with open(args.json, "w") as stream:
            json.dump(report, stream, indent=1)
    verdict = "every element right, every cut survived" if ok else "FAILED"
    print(f"\nverdict: {verdict}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
