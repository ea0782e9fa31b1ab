#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch when a rank dies: the others raise at once; a rank that is stopped harms nobody.

Rank 2 of 4 is killed in the middle of the work, once with blocking waits, where Python sees an
exception, and once as PyTorch comes, where its watchdog notices and ends the process. In
a third run the rank is stopped for 0.8 s and goes on."""

import os
import re
import signal
import sys
import time

import _run
import launch

LIMIT_S = 150
RANKS = 4
VICTIM = 2
KILL_AT = 20
LIMIT_DEATH_S = 8.0  # who has no connection to the dead hears of it when its neighbours end
WAIT_S = 20
PAUSE_S = 0.8
STEPS_PAUSE = 200

def begin(args, options, env):
    env = {**launch.TORCH_NO_DUMP, **env}
    return _run.Job(args, "braid", "_endless.py", options, ranks=RANKS, per_host=1,
                    rails=_run.RAILS, env=env)


def working(job):
    return job.wait_line(VICTIM, lambda line: line.get("step", -1) >= KILL_AT, 60) is not None


def watchdog_time(text, kill_time):
    """Seconds from the kill until PyTorch's watchdog said that it noticed, None if it did not."""
    found = re.search(r"E\d{4} (\d+):(\d+):(\d+\.\d+) .*(failure detected by watchdog|"
                      r"Watchdog caught collective operation)", text)
    if not found:
        return None
    hour, minute, second = found.groups()[:3]
    then = int(hour) * 3600 + int(minute) * 60 + float(second)
    return max(0.0, (then - kill_time % 86400 + 43200) % 86400 - 43200)


def noticed(job, rank, killed_ns, kill_time):
    """When the rank raised an exception or its watchdog spoke, in seconds after the kill."""
    for line in job.lines(rank):
        if "raised" in line:
            return (line["mono_ns"] - killed_ns) / 1e9, f"raises {line['raised']}"
    with open(job.path("err", rank), errors="replace") as stream:
        seconds = watchdog_time(stream.read(), kill_time)
    return (seconds, "its watchdog ends it") if seconds is not None else (None, "")


def kill(args, name, env):
    job = begin(args, [], env)
    if not working(job):
        job.finish(1, 1)
        return [name, "did not get going", "", ""], False
    kill_time, killed_ns = time.time(), time.monotonic_ns()
    job.procs[VICTIM].send_signal(signal.SIGKILL)
    others = [rank for rank in range(RANKS) if rank != VICTIM]
    deadline = min(time.monotonic() + WAIT_S, job.args.deadline)
    while time.monotonic() < deadline and \
            any(noticed(job, rank, killed_ns, kill_time)[0] is None for rank in others):
        time.sleep(0.1)
    ends = [noticed(job, rank, killed_ns, kill_time) for rank in others]
    result = job.finish(1, 1)
    gone = [event["mono_ns"] for event in result["events"] if event.get("event") == "peer_gone"]
    plugin = (min(gone) - killed_ns) / 1e9 if gone else -1
    ok = 0 <= plugin <= 2 and all(seconds is not None and seconds <= LIMIT_DEATH_S
                                  for seconds, _ in ends)
    shown = ", ".join("never" if seconds is None else f"{seconds:.2f}" for seconds, _ in ends)
    remote = "ncclRemoteError" in result["log"]
    if not ok:
        print("\n".join(_run.warnings_of(result)[:30]))
    print(f"{name}: {shown} s, {[how for _, how in ends]}", flush=True)
    return [name, shown, "; ".join(sorted({how for _, how in ends})),
            f"{'ncclRemoteError' if remote else 'none'}, told by the plugin after {plugin:.2f} s"
            ], ok and remote


def pause(args):
    job = begin(args, ["--steps", STEPS_PAUSE], {})
    if not working(job):
        job.finish(1, 1)
        return ["a rank stopped for 0.8 s", "did not get going", "", ""], False
    os.kill(job.procs[VICTIM].pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)
    os.kill(job.procs[VICTIM].pid, signal.SIGCONT)
    result = job.finish(60)
    downs = _run.count(result, "path_down")
    done = min(len(_run.steps(result, rank)) for rank in range(RANKS))
    ok = (_run.is_clean(result) and _run.wrong(result) == 0 and downs == 0 and
          done == STEPS_PAUSE)
    print(f"pause: codes {result['codes']}, {done} steps, {downs} path ends down", flush=True)
    return [f"a rank stopped for {PAUSE_S} s", "none ends",
            f"{done} steps, {_run.wrong(result)} wrong elements", f"{downs} path ends down"], ok


def body(args):
    # A killed client may take MPS down with it: ranks take turns here.
    args.mps_env = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}
    rows, oks = [], []
    for row, ok in (kill(args, "killed, blocking waits", {"TORCH_NCCL_BLOCKING_WAIT": "1"}),
                    kill(args, "killed, PyTorch's defaults", {}), pause(args)):
        rows.append(row)
        oks.append(ok)
    summary = (f"after a kill the others notice in {rows[0][1]} s (blocking) and {rows[1][1]} s "
               f"(default), PyTorch's own limit being 120 s; a pause of {PAUSE_S} s: {rows[2][2]}")
    table = {"title": f"PyTorch, {RANKS} ranks, rank {VICTIM} killed or stopped in mid-work",
             "columns": ["what", "the others notice after, s", "how", "cause given"], "rows": rows}
    return _run.report(args, all(oks), summary, [table])


if __name__ == "__main__":
    sys.exit(_run.main(__doc__, body, sys.argv[1:]))
