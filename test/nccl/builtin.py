# SPDX-License-Identifier: Apache-2.0
"""NCCL's own IB transport over the same rails: healthy over one, two and four of them beside Braid, with
a slow rail, and what becomes of it under each fault, also with its own port failover where that NCCL
has one."""

import concurrent.futures

import job
import launch
from faults import KINDS, RATE, SLOW, fault_line
from healthy import CORE

NAMES = {"braid": "Braid", "ib": "IB", "ib-failover": "IB"}
WORDS = {"braid": "Braid", "ib": "built-in IB"}
COUNTS = (1, 2, 4)
BENCH = "coll=all_reduce,ring bytes=64M"


def problems_of(done, net, rails):
    """What keeps a job from counting as right over that many rails."""
    found = []
    if not done.ok:
        found.append("failed")
    if done.wrong or done.elements == 0:
        found.append(f"{done.wrong} of {done.elements} elements wrong")
    if done.network() != NAMES[net]:
        found.append(f"ran on {done.network()}")
    used = [done.rails_used(host) for host in (0, 1)]
    if used != [rails, rails]:
        found.append(f"data went over {used} rails")
    return found


def speeds(done):
    """GB/s of each benchmark, by operation, in the order they were run."""
    found = {}
    for step in done.steps:
        if step["kind"] == "bench":
            found.setdefault(step["coll"], []).append(step["bytes"] / step["ns_each"])
    return found


def spin_env():
    """One for all rails counts of a case: they are compared."""
    return {"FABRIC_SPIN_US": launch.spin_us(ranks=2, rails=max(COUNTS))}


def rails(context):
    """NCCL's own IB and Braid over 1, 2 and 4 rails: every operation checked, and how fast"""
    plan = ["comm a", f"op a {CORE}", f"bench a {BENCH} iters=4 warm=1"]
    return rails_result({(count, net): job.run(context, net, plan, rails=count, rate=RATE,
                                               env=spin_env())
                         for count in COUNTS for net in ("ib", "braid")})


def rails_result(jobs):
    rows, problems = [], []
    for (count, net), done in jobs.items():
        found = problems_of(done, net, count)
        problems += [f"{WORDS[net]}, {count} rails: {what}" for what in found]
        fast = speeds(done)
        rows.append([count, WORDS[net], f"{done.wrong} of {done.elements}",
                     *(f"{fast[coll][0]:.2f}" if coll in fast else "–"
                       for coll in ("all_reduce", "ring"))])
    wrong = sum(done.wrong for done in jobs.values())
    result = {"ok": not problems, "wrong": wrong, "rows": rows,
              "summary": f"{wrong} of {sum(done.elements for done in jobs.values())} elements wrong "
                         f"over {', '.join(str(count) for count in COUNTS)} rails on both, data over "
                         "each of them" + "".join(f"; {what}" for what in problems),
              "tables": [{"title": f"NCCL's own IB beside Braid, 2 ranks as 2 hosts, rails of {RATE} "
                                   "MB/s; GB/s at 64 MiB",
                          "columns": ["rails", "transport", "elements wrong", "all_reduce", "ring"],
                          "rows": rows}]}
    if problems:
        result["log"] = "\n".join(done.tail() for done in jobs.values() if not done.ok)
    return result


def slow(context):
    """one of four rails gets slow, to 10 %: Braid beside NCCL's own transport"""
    plan = ["comm a", f"bench a {BENCH} iters=6 warm=1",
            f"rule rule=rate,host=0,rail=1,value={SLOW}", f"bench a {BENCH} iters=6 warm=2"]
    return slow_result({net: job.run(context, net, plan, rate=RATE, limit_s=60,
                                     env=spin_env())
                        for net in ("ib", "braid")})


def slow_result(jobs):
    rows, problems, words = [], [], []
    for net, done in jobs.items():
        problems += [f"{WORDS[net]}: {what}" for what in problems_of(done, net, 4)]
        for coll, (before, after) in ((c, v) for c, v in speeds(done).items() if len(v) == 2):
            rows.append([coll, WORDS[net], f"{before:.2f}", f"{after:.2f}", f"{before / after:.2f}"])
            words.append(f"{coll} on {WORDS[net]} takes {before / after:.2f} x the time")
    downs = jobs["braid"].count_events("path_down")
    if downs:
        problems.append(f"{downs} slow paths were given up")
    if len(rows) != 2 * len(jobs):
        problems.append("a measurement is missing")
    return {"ok": not problems, "rows": rows, "summary": "; ".join(words + problems),
            "log": "\n".join(done.tail() for done in jobs.values() if not done.ok),
            "tables": [{"title": f"One of 4 rails of {RATE} MB/s at a tenth of its rate, 64 MiB (even "
                                 "shares of what is left: 1.29 x)",
                        "columns": ["operation", "transport", "GB/s before", "GB/s after",
                                    "time after / before"], "rows": rows}]}


def fate(done, slow_ratio):
    """What became of a job on the built-in transport, in a few words."""
    if done.wrong:
        return f"WRONG RESULTS, {done.wrong} elements"
    if done.ok:
        return f"goes on, {slow_ratio:.1f} x the time" if slow_ratio > 1.5 else "goes on"
    errors = [e for e in done.job.get("errors", []) if e["error"] != "none"]
    if errors:
        first = min(errors, key=lambda e: e["ms"])
        return f"{first['error']} after {first['ms'] / 1000:.1f} s, job ends"
    if "hangs" in done.log:
        return "hangs, no error"
    return f"ends with {done.code}"


def fates_of(context, net, more):
    """Each kind of fault once; `more(done)` tells what else must be so, as a list of complaints."""
    def one(kind):
        plan = ["comm a", fault_line(kind, "a", "all_reduce", 0, 1, mend=False)]
        done = job.run(context, net, plan, rate=RATE, limit_s=30, step_limit_s=8, mps=False)
        step = next((s for s in done.steps if s["kind"] == "fault"), {})
        ratio = step["after_us"] / max(1, step["healthy_us"]) if step else 0
        complaints = more(done) + ([] if done.network() == "IB" else [f"on {done.network()}"])
        complaints += [] if done.fired else ["the fault never fired"]
        return {"fate": fate(done, ratio), "wrong": done.wrong, "version": done.version(),
                "complaints": complaints, "log": done.tail() if complaints or not done.ok else ""}

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        return dict(zip(KINDS, pool.map(one, KINDS)))


def fates_result(fates):
    complaints = [f"{kind}: {', '.join(f['complaints'])}" for kind, f in fates.items()
                  if f["complaints"]]
    words = [f"{kind}: {f['fate']}" for kind, f in fates.items()]
    result = {"ok": not complaints, "fates": fates,
              "summary": f"NCCL {next(iter(fates.values()))['version']}; " +
                         "; ".join(words + complaints)}
    if complaints:
        result["log"] = next(f["log"] for f in fates.values() if f["complaints"])
    return result


def baseline(context):
    """the same faults on NCCL's own IB transport, one line each"""
    return fates_result(fates_of(context, "ib", lambda done: []))


def failover(context):
    """the same faults on NCCL's own port failover, where that NCCL has one (2.29.7 and later)"""
    if not launch.has_own_failover(context.nccl):
        return {"ok": True, "skipped": True, "summary": "skipped: the NCCL here has no port failover "
                                                        "of its own; --nccl FILE takes another"}
    return fates_result(fates_of(context, "ib-failover", failover_complaints))


def failover_complaints(done):
    """It must have been at work: the adapters taken for one, and the failover set up on it."""
    return [what for sign, what in (("Made virtual device", "adapters not merged"),
                                    ("Resiliency context was initialized", "failover not set up"))
            if sign not in done.log]
