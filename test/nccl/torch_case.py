# SPDX-License-Identifier: Apache-2.0
"""Case `torch`: unmodified NCCL through PyTorch over the software fabric. In one job on Braid every
operation healthy, a rail cut in mid-collective and mended, another one cut for good; the same cut on
NCCL's built-in IB transport, which must fail; and a spoiled element, which must be noticed."""

import os
import subprocess
import sys

import launch
from faults import FAULT_ENV

RANKS = 2
RAILS = 4
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv")
SIZES = (8, 65536, 16777216, 268435456)
CUT_OPS = ("all_reduce", "send_recv")
CUT_SIZE = 268435456
CUT_BYTES = 5000000
CUT_STEPS = 4  # the second of them is hit
BACK_SIZE = 67108864
BACK_STEPS = 60
LIMIT_S = 120
DUMP_S = 90


def cut_rule(rail):
    return f"cut host=0 rail={rail} bytes={CUT_BYTES}"


def braid_steps():
    """The job's steps as (first, op, bytes, count), and its rules as (step, rule). The rail that
    all_reduce loses comes back, the one that send_recv loses does not."""
    parts = [(op, size, 1) for op in OPS for size in SIZES]
    parts += [("all_reduce", CUT_SIZE, CUT_STEPS), ("all_reduce", BACK_SIZE, BACK_STEPS),
              ("send_recv", CUT_SIZE, CUT_STEPS)]
    firsts = [sum(part[2] for part in parts[:i]) for i in range(len(parts))]
    rules = [(firsts[-3] + 1, cut_rule(1)), (firsts[-2], "heal host=0 rail=1"),
             (firsts[-1] + 1, cut_rule(2))]
    return [(first, *part) for first, part in zip(firsts, parts)], rules


def run_ranks(context, net, steps, rules=(), more=()):
    """One job. Gives its steps, exit codes, events, log text."""
    folder = launch.make_folder()
    port, procs = launch.free_port(), []
    options = ["--fabricctl", os.path.join(context.build, "fabric", "fabricctl"), "--dump-after",
               str(DUMP_S), *more]
    options += [word for _, op, size, count in steps for word in ("--steps", f"{op}:{size}:{count}")]
    options += [word for step, rule in rules for word in ("--rule", f"{step}:{rule}")]
    for rank in range(RANKS):
        env = launch.rank_env(context.build, net, rank, RANKS, port, folder, rails=RAILS)
        env.update({**launch.TORCH_NO_DUMP, **FAULT_ENV})
        if net == "braid" and RANKS > context.gpus:  # the others end in mid-kernel
            env.update(context.mps_env)
        with open(os.path.join(folder, f"out.{rank}"), "w") as out, \
                open(os.path.join(folder, f"err.{rank}"), "w") as err:
            procs.append(subprocess.Popen(
                [sys.executable, os.path.join(launch.HERE, "torch_rank.py"), *options], env=env,
                stdout=out, stderr=err))
    codes = launch.wait_all(procs, LIMIT_S)
    result = collect(folder, codes)
    launch.drop_folder(folder, context.keep)
    return result


def collect(folder, codes):
    lines, log = [], ""
    for rank in range(len(codes)):
        path = os.path.join(folder, f"out.{rank}")
        lines += launch.read_lines(path)
        for name in (path, os.path.join(folder, f"err.{rank}")):
            with open(name, errors="replace") as stream:
                log += f"--- rank {rank}, {name[len(folder) + 1:]}\n" + stream.read()
    return {"codes": codes, "steps": [line for line in lines if "step" in line],
            "ready_s": max((line["ready_s"] for line in lines if "ready_s" in line), default=None),
            "events": launch.read_events(folder), "fired": launch.read_fired(folder), "log": log}


def wrong_of(result):
    return sum(step["wrong"] for step in result["steps"])


def network_of(result):
    for line in result["log"].splitlines():
        if "Using network" in line:
            return line.split("Using network")[1].strip()
    return "?"


def fired_at(result, action, rail):
    """When that rule fired, 0 if it did not."""
    return next((f["t_ns"] for f in result["fired"] if (f["action"], f["rail"]) == (action, rail)), 0)


def events_of(result, kind, begin_ns, end_ns):
    """Both ends' events of that time. A path's rails at its two ends need not have one number."""
    return [e for e in result["events"]
            if e.get("event") == kind and begin_ns <= e.get("mono_ns", 0) < end_ns]


def took_s(steps):
    """The slower rank's seconds of one step."""
    return max((step["end_ns"] - step["begin_ns"] for step in steps), default=0) / 1e9


def cut_of(result, first, rail, until_ns):
    """What the cut of that rail in the step after `first` did, up to that time."""
    at = [[s for s in result["steps"] if s["step"] == first + i] for i in range(CUT_STEPS)]
    hit_ns = fired_at(result, "cut", rail)
    is_running = any(step["begin_ns"] < hit_ns < step["end_ns"] for step in at[1])
    downs = events_of(result, "path_down", hit_ns, until_ns)
    return {"ok": is_running and len(downs) > 0 and all(len(steps) == RANKS for steps in at),
            "running": is_running, "paths_down": len(downs),
            "wrong": sum(s["wrong"] for steps in at for s in steps),
            "bytes_replayed": sum(e.get("bytes_replayed", 0) for e in downs),
            "step_s": took_s(at[1]), "after_s": min(took_s(at[2]), took_s(at[3]))}


def braid_result(result):
    """Judges the job on Braid."""
    steps, _ = braid_steps()
    wanted = sum(count for *_, count in steps)
    firsts = {op: next(s[0] for s in steps if s[1] == op and s[3] == CUT_STEPS) for op in CUT_OPS}
    mended_ns, again_ns = fired_at(result, "heal", 1), fired_at(result, "cut", 2)
    cuts = {"all_reduce": cut_of(result, firsts["all_reduce"], 1, mended_ns),
            "send_recv": cut_of(result, firsts["send_recv"], 2, 1 << 63)}
    ups = len(events_of(result, "path_up", mended_ns, again_ns))
    ok = (not any(result["codes"]) and wrong_of(result) == 0 and network_of(result) == "Braid" and
          len(result["steps"]) == RANKS * wanted and all(cut["ok"] for cut in cuts.values()) and
          ups == cuts["all_reduce"]["paths_down"])
    return {"ok": ok, "cut": cuts, "wrong": wrong_of(result), "paths_up": ups,
            "elements": sum(s["elements"] for s in result["steps"]), "codes": result["codes"],
            "ready_s": result["ready_s"], "steps": len(result["steps"])}


def builtin_result(result):
    """It must have been right until the cut, and ended by it."""
    before = [s for s in result["steps"] if s["step"] == 0]
    return {"ok": len(before) == RANKS and wrong_of(result) == 0 and len(result["fired"]) > 0 and
            all(code != 0 for code in result["codes"]) and network_of(result) == "IB",
            "network": network_of(result), "codes": [str(code) for code in result["codes"]],
            "steps": len(result["steps"])}


def corrupt_result(result):
    return {"ok": sorted(result["codes"]) == [0, 1] and wrong_of(result) == 1,
            "wrong": wrong_of(result), "codes": [str(code) for code in result["codes"]]}


def log_of(title, result, count=60):
    """The stacks if there are any, then what each rank said last."""
    text = [f"--- {title}: exit codes {result['codes']}"]
    for part in result["log"].split("--- rank ")[1:]:
        lines = part.splitlines()
        stacks = next((i for i, line in enumerate(lines) if line.startswith("Timeout (")), None)
        text += ["--- rank " + lines[0]] + (lines[stacks:][:count] if stacks else lines[1:][-count:])
    return "\n".join(line[:300] for line in text)


def rows_of(result, report):
    rows = []
    for op in OPS:
        steps = [s for s in result["steps"] if s["op"] == op]
        cut = report["braid"]["cut"].get(op)
        rows.append([op, f"{sum(s['wrong'] for s in steps)} of {sum(s['elements'] for s in steps)}"] +
                    ([f"{cut['bytes_replayed'] / 1e6:.1f} MB",
                      f"{cut['step_s']:.2f} s, {cut['after_s']:.2f} s"] if cut else ["not run", ""]))
    return rows


def run(context):
    """PyTorch: 5 operations healthy, 2 with a rail cut, one of them mended; the cut on built-in IB"""
    steps, rules = braid_steps()
    ib_steps = [(0, "all_reduce", CUT_SIZE, CUT_STEPS)]
    jobs = {"braid": run_ranks(context, "braid", steps, rules),
            "builtin": run_ranks(context, "ib", ib_steps, [(1, cut_rule(1))], ["--timeout", "20"]),
            "corrupt": run_ranks(context, "braid", [(0, "all_reduce", 65536, 2)], more=["--corrupt",
                                                                                       "1"])}
    report = {"braid": braid_result(jobs["braid"]), "builtin": builtin_result(jobs["builtin"]),
              "corrupt": corrupt_result(jobs["corrupt"])}
    mine = report["braid"]
    report["log"] = "\n".join(log_of(name, jobs[name]) for name in jobs if not report[name]["ok"])
    report["ok"] = all(report[name]["ok"] for name in jobs)
    report["summary"] = (
        f"{mine['wrong']} of {mine['elements']} elements wrong in {mine['steps']} steps, "
        f"{sum(cut['ok'] for cut in mine['cut'].values())} of {len(CUT_OPS)} cuts survived, "
        f"{mine['paths_up']} path ends came back; built-in IB "
        f"{'ends with it' if report['builtin']['ok'] else 'NOT as expected'}; a spoiled element is "
        f"{'noticed' if report['corrupt']['ok'] else 'NOT noticed'}")
    report["tables"] = [{"title": f"PyTorch, {RANKS} ranks as {RANKS} hosts, {RAILS} rails each; a rail "
                                  f"of host 0 is cut 5 MB into a collective of {CUT_SIZE >> 20} MiB",
                         "columns": ["operation", "elements wrong", "sent again",
                                     "the step with the cut, one after it"],
                         "rows": rows_of(jobs["braid"], report)}]
    return report
