# SPDX-License-Identifier: Apache-2.0
"""Case `torch`: unmodified NCCL through PyTorch over the software fabric. Braid healthy, Braid with a
rail cut in mid-collective, a rail that is cut and comes back, and the same cut on NCCL's built-in IB
transport, which must fail."""

import os
import subprocess
import sys

import launch

RANKS = 2
RAILS = 4
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv")
CUT_OPS = ("all_reduce", "send_recv")
BUILTIN_OPS = ("all_reduce",)
LIMIT_S = 60
SIZES = "8,65536,16777216,268435456"
RAIL = 1
CUT_SIZE = 268435456
CUT_STEPS = 4
CUT_STEP = 1
CUT_RULE = f"cut host=0 rail={RAIL} bytes=5000000"
BACK_STEPS = 120
BACK_STEP = 30


def run_ranks(context, net, extra):
    """One job. Gives its steps, exit codes, events, log text."""
    folder = launch.make_folder()
    port, procs = launch.free_port(), []
    fabricctl = os.path.join(context.build, "fabric", "fabricctl")
    for rank in range(RANKS):
        env = launch.rank_env(context.build, net, rank, RANKS, port, folder, rails=RAILS)
        env.update(context.mps_env if net == "braid" else {})  # the others end in mid-kernel
        with open(os.path.join(folder, f"out.{rank}"), "w") as out, \
                open(os.path.join(folder, f"err.{rank}"), "w") as err:
            procs.append(subprocess.Popen(
                [sys.executable, os.path.join(launch.HERE, "torch_rank.py"), "--fabricctl",
                 fabricctl] + extra, env=env, stdout=out, stderr=err))
    codes = launch.wait_all(procs, LIMIT_S)
    result = collect(folder, codes)
    launch.drop_folder(folder, context.keep)
    return result


def collect(folder, codes):
    steps, log = [], ""
    for rank in range(len(codes)):
        path = os.path.join(folder, f"out.{rank}")
        steps += launch.read_lines(path)
        for name in (path, os.path.join(folder, f"err.{rank}")):
            with open(name, errors="replace") as stream:
                log += stream.read()
    return {"codes": codes, "steps": steps, "events": launch.read_events(folder), "log": log,
            "fired": len(launch.read_fired(folder)) > 0}


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


def log_of(title, result):
    lines = result["log"].splitlines()[-40:]
    return f"--- {title}: exit codes {result['codes']}, last lines\n" + "\n".join(lines)


def check_healthy(context, report):
    result = run_ranks(context, "braid", ["--ops", ",".join(OPS), "--sizes", SIZES])
    ok = is_clean(result) and network_of(result) == "Braid"
    report["healthy"] = {"ok": ok, "network": network_of(result), "wrong": wrong_of(result),
                         "steps": result["steps"]}
    if not ok:
        report["log"] += log_of("healthy run", result)
    return ok


def cut_args(op):
    return ["--ops", op, "--sizes", str(CUT_SIZE), "--repeat", str(CUT_STEPS),
            "--rule", f"{CUT_STEP}:{CUT_RULE}"]


def check_cut(context, op, report):
    result = run_ranks(context, "braid", cut_args(op))
    steps = len([s for s in result["steps"] if s["rank"] == 0])
    ok = (is_clean(result) and result["fired"] and count_events(result, "path_down") > 0 and
          replayed_of(result) > 0 and steps == CUT_STEPS)
    report["cut"][op] = {"ok": ok, "wrong": wrong_of(result), "fired": result["fired"],
                         "bytes_replayed": replayed_of(result),
                         "step_seconds": max(step_times(result, CUT_STEP, CUT_STEP), default=0),
                         "after_seconds": min(step_times(result, CUT_STEP + 1, CUT_STEPS),
                                              default=0)}
    if not ok:
        report["log"] += log_of(f"{op} with a cut", result)
    return ok


def check_back(context, report):
    """Cut, then mended: the rail must be used again by itself, with every element right."""
    result = run_ranks(context, "braid", ["--ops", "all_reduce", "--sizes", str(CUT_SIZE),
                                          "--repeat", str(BACK_STEPS),
                                          "--rule", f"{CUT_STEP}:{CUT_RULE}",
                                          "--rule", f"{BACK_STEP}:heal host=0 rail={RAIL}"])
    downs, ups = count_events(result, "path_down"), count_events(result, "path_up")
    ok = is_clean(result) and result["fired"] and downs > 0 and ups == downs
    report["back"] = {"ok": ok, "wrong": wrong_of(result), "paths_down": downs, "paths_up": ups}
    if not ok:
        report["log"] += log_of("cut and mended", result)
    return ok


def check_builtin(context, op, report):
    healthy = run_ranks(context, "ib", ["--ops", op, "--sizes", str(CUT_SIZE), "--repeat",
                                        str(CUT_STEPS)])
    cut = run_ranks(context, "ib", cut_args(op) + ["--timeout", "20"])
    failed = any(code != 0 for code in cut["codes"]) and cut["fired"]
    report["builtin"][op] = {"healthy_ok": is_clean(healthy), "network": network_of(healthy),
                             "failed_under_cut": failed,
                             "codes": [str(code) for code in cut["codes"]]}
    if not is_clean(healthy):
        report["log"] += log_of(f"built-in IB, healthy {op}", healthy)
    return is_clean(healthy) and failed


def rows_of(report):
    sizes, rows = len(SIZES.split(",")), []
    for op in OPS:
        mine = [s for s in report["healthy"]["steps"] if s["op"] == op]
        cut, ib = report["cut"].get(op, {}), report["builtin"].get(op)
        fate = "not run"
        if ib is not None:
            fate = "job fails" if ib["failed_under_cut"] else "SURVIVES"
        wrong, elements = sum(s["wrong"] for s in mine), sum(s["elements"] for s in mine)
        healthy = f"{wrong} of {elements} elements wrong, {sizes} sizes"
        rows.append([op, healthy] + ([
            f"{cut['wrong']} wrong, {'job goes on' if cut['ok'] else 'FAILED'}",
            f"{cut['bytes_replayed'] / 1e6:.1f} MB",
            f"{cut['step_seconds']:.2f} s, {cut['after_seconds']:.2f} s", fate] if cut else
            ["not run", "", "", fate]))
    return rows


def run(context):
    """PyTorch: 5 operations healthy, 2 with a rail cut; cut and mended; the cut on built-in IB"""
    report = {"cut": {}, "builtin": {}, "log": ""}
    ok = check_healthy(context, report)
    for op in CUT_OPS:
        ok = check_cut(context, op, report) and ok
    ok = check_back(context, report) and ok
    for op in BUILTIN_OPS:
        ok = check_builtin(context, op, report) and ok
    back = report["back"]
    survived = sum(cut["ok"] for cut in report["cut"].values())
    report.update({"ok": ok, "summary": f"{survived} of {len(CUT_OPS)} cuts survived; cut and mended: "
                                        f"{back['wrong']} elements wrong, {back['paths_down']} path "
                                        f"ends went down, {back['paths_up']} came back",
                   "tables": [{"title": f"PyTorch, {RANKS} ranks as {RANKS} hosts, {RAILS} rails "
                                        f"each; rail {RAIL} of host 0 is cut 5 MB into a "
                                        f"collective of {CUT_SIZE >> 20} MiB",
                               "columns": ["operation", "Braid, healthy", "Braid, rail cut",
                                           "sent again", "the step with the cut, a step after it",
                                           "built-in IB, same cut"], "rows": rows_of(report)}]})
    return report
