# SPDX-License-Identifier: Apache-2.0
"""Cases with a fault in the middle of collectives, and those with a rank paused or killed."""

import statistics

import job
from healthy import CORE, summary

RATE = 1000  # MB/s per rail
SLOW = RATE // 10
COLLS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "ring")
CHOICES = (("Ring", "LL"), ("Ring", "Simple"), ("Tree", "LL"), ("Tree", "Simple"))
QUICK_CHOICES = (("Ring", "LL"), ("Tree", "Simple"))
TYPES = ("float", "bfloat16", "int64", "half", "int32")
# kind: (rules, mending, words). {h} is the host, {r} the rail, {q} another rail, {t} what triggers it.
KINDS = {
    "cut": ("cut,host={h},rail={r},{t}", "heal,host={h},rail={r}", "black hole"),
    "cut_tx": ("cut,host={h},rail={r},dir=tx,{t}", "heal,host={h},rail={r}",
               "one-way cut, its sending"),
    "cut_rx": ("cut,host={h},rail={r},dir=rx,{t}", "heal,host={h},rail={r}",
               "one-way cut, its receiving"),
    "port_down": ("port_down,host={h},rail={r},{t}", "port_up,host={h},rail={r}",
                  "port down"),
    "ack_loss": ("ack_loss,host={h},rail={r},{t}", "heal,host={h},rail={r}",
                 "acknowledgements lost"),
    "flap": ("flap,host={h},rail={r},count=3,down_ms=100,up_ms=300,{t}",
             "heal,host={h},rail={r}", "port flaps, 3 times 100 ms"),
    "second": ("block,host={h},rail={r},call=modify_qp,delay_ms=40+cut,host={h},rail={r},{t}"
               "+cut,host={h},rail={q},{t}", "heal,host={h},rail={r}+heal,host={h},rail={q}",
               "a second rail during the repair"),
    "slow": (f"rate,host={{h}},rail={{r}},value={SLOW},{{t}}",
             f"rate,host={{h}},rail={{r}},value={RATE}", "rail slow, to 10 %"),
    "nic_death": ("nic_death,host={h},rail={r},{t}", None, "NIC dies"),
}
# Where only clear-to-send entries and acknowledgements go that way, bytes on one rail may never add
# up: there a longer collective is cut by the clock.
BY_CLOCK = {"trigger": "ms=30", "size": "256M"}
FLAP_MS = 1500   # it is over then
KEEPS_PATHS = ("slow",)  # nothing to fail over from
FAULT_ENV = {"BRAID_REJOIN_MAX_MS": "500"}


def sends(coll, host):
    """Whether that host sends data in the operation, its root being rank 0 on host 0."""
    return {"broadcast": host == 0, "reduce": host == 1}.get(coll, True)


def receives(coll, host):
    return {"broadcast": host == 1, "reduce": host == 0}.get(coll, True)


def rules_of(kind, host, rail, other, trigger):
    """The rules of that kind and those that mend it, None for those where nothing does."""
    rules, heal, _ = KINDS[kind]
    names = {"h": host, "r": rail, "q": other, "t": trigger}
    return rules.format(**names), heal.format(**names) if heal else None


def fault_line(kind, comm, coll, host, rail, size="16M", bytes_at=500003, mend=True, turn=0):
    """One step of a plan. `turn` varies type, place and registration from line to line."""
    trigger = f"bytes={bytes_at}"
    if (kind == "cut_tx" and not sends(coll, host)) or \
            (kind == "cut_rx" and not receives(coll, host)):
        trigger, size = BY_CLOCK["trigger"], BY_CLOCK["size"]
    rules, heal = rules_of(kind, host, rail, 1 + rail % 3, trigger)
    in_place = turn % 2 == 1 and coll not in ("all_to_all", "ring")
    line = (f"fault {comm} coll={coll} type={TYPES[turn % len(TYPES)]} bytes={size} root=0 "
            f"place={'in' if in_place else 'out'} reg={1 if turn % 3 == 2 else 0} "
            f"label={kind}/{host} rule={rules}")
    if heal and mend:
        line += f" heal={heal}"
    if kind == "flap":
        line += f" after_ms={FLAP_MS}"
    return line


def kind_plan(kind, quick):
    """All operations, and all-reduce by every algorithm and protocol, at either end."""
    plan, count = ["comm a"], 0
    # The second rail must have moved its bytes before all wait for the first one.
    bytes_at = 20003 if kind == "second" else 100003
    for coll in (("all_reduce", "broadcast") if quick else COLLS):
        for host in (0, 1):
            plan.append(fault_line(kind, "a", coll, host, 1 + count % 3, turn=count))
            count += 1
    for algo, proto in (QUICK_CHOICES if quick else CHOICES):
        plan.append(f"comm f algo={algo} proto={proto}")
        for host in (0, 1):
            plan.append(fault_line(kind, "f", "all_reduce", host, 1 + count % 3, "4M", bytes_at,
                                   turn=count))
            count += 1
        plan.append("destroy f")
    return plan


def death_plan(host, quick):
    """A dead HCA stays dead for its processes: one rail after the other, 7 of 8."""
    lines = [fault_line("nic_death", "a", coll, host, 1 + i, bytes_at=250003, turn=i)
             for i, coll in enumerate(COLLS)]
    return ["comm a"] + (lines[:2] if quick else lines)


def incidents(done):
    """For each fault step: what the plugin's events say between it and the next one."""
    faults = [step for step in done.steps if step["kind"] == "fault"]
    starts = [min((f["t_ns"] for f in step["fired"]), default=0) for step in faults]
    found = []
    for i, step in enumerate(faults):
        end = starts[i + 1] if i + 1 < len(starts) else 1 << 63
        events = [e for e in done.events if starts[i] <= e.get("mono_ns", 0) < end]
        # A rule without a trigger fires ahead of the fault proper.
        hits = [f["t_ns"] for f in step["fired"] if f["running"]]
        begin = min(hits, default=starts[i])
        seen = [e["mono_ns"] for e in events if e["event"] == "path_fault"]
        gone = [e for e in events if e["event"] == "path_down"]
        path = ("pid", "comm", "path")
        began = {}
        for e in events:
            if e["event"] == "path_fault":
                began.setdefault(tuple(e.get(k) for k in path), e["mono_ns"])
        repairs = [e["mono_ns"] - began[key] for e in gone
                   if (key := tuple(e.get(k) for k in path)) in began]
        found.append({
            "step": step, "running": bool(hits), "downs": len(gone),
            "replayed": sum(e.get("bytes_replayed", 0) for e in gone),
            "notice_ms": (min(seen) - begin) / 1e6 if seen else None,
            "repair_ms": max(repairs) / 1e6 if repairs else None,
            "overlap": any(began.get(key, 1 << 63) < start < e["mono_ns"]
                           for e in gone if (key := tuple(e.get(k) for k in path))
                           for other, start in began.items()
                           if other[:2] == key[:2] and other != key),
        })
    return found


def kind_result(kind, jobs, wanted):
    """Judges the jobs of one kind: all right, each fault in a running collective, each repaired."""
    found = [item for done in jobs for item in incidents(done)]
    wrong, elements = sum(j.wrong for j in jobs), sum(j.elements for j in jobs)
    running = sum(item["running"] for item in found)
    downs = sum(item["downs"] > 0 for item in found)
    problems = []
    if not all(j.ok for j in jobs):
        problems.append("a job failed")
    if wrong or len(found) != wanted or running != wanted:
        problems.append(f"{wrong} wrong, {running} of {wanted} faults hit a running collective")
    if kind in KEEPS_PATHS:
        if downs:
            problems.append(f"{downs} slow rails were given up")
    elif downs != wanted:
        problems.append(f"only {downs} of {wanted} were failed over")
    if kind == "second" and not all(item["overlap"] for item in found):
        problems.append(f"{sum(i['overlap'] for i in found)} of {wanted} second failures fell into "
                        "the repair")
    result = {"ok": not problems, "wrong": wrong, "elements": elements, "runs": wanted,
              "running": running, "failed_over": downs,
              "replayed": sum(item["replayed"] for item in found),
              "notice_ms": spread([i["notice_ms"] for i in found]),
              "repair_ms": spread([i["repair_ms"] for i in found]),
              "after": spread([i["step"]["after_us"] / max(1, i["step"]["healthy_us"])
                               for i in found], 2),
              "hit_ms": spread([i["step"]["hit_us"] / 1000 for i in found]),
              "back_ms": spread([i["step"].get("back_ms") for i in found], 0),
              "seconds": max((j.job.get("seconds", 0) for j in jobs), default=0),
              "summary": f"{wrong} of {elements} elements wrong; {running} of {wanted} faults hit a "
                         f"running collective, {downs} failed over" +
                         ("; " + ", ".join(problems) if problems else "")}
    result["faults"] = [
        {key: i["step"].get(key) for key in ("label", "coll", "bytes", "iters", "healthy_us", "hit_us",
                                             "after_us", "back_ms", "verdict")} |
        {key: i[key] for key in ("running", "downs", "replayed", "notice_ms", "repair_ms", "overlap")}
        for i in found]
    if problems:
        result["log"] = "\n".join(j.tail() for j in jobs)
    return result


def spread(values, digits=1):
    """Median and worst of what is known."""
    known = sorted(v for v in values if v is not None)
    if not known:
        return None
    return [round(statistics.median(known), digits), round(known[-1], digits)]


def fault_case(kind):
    def run(context):
        if kind == "nic_death":
            jobs = [job.run(context, "braid", death_plan(host, context.quick), rails=8, rate=RATE,
                            env=FAULT_ENV, limit_s=200) for host in (0, 1)]
            wanted = 4 if context.quick else 2 * len(COLLS)
        else:
            plan = kind_plan(kind, context.quick)
            jobs = [job.run(context, "braid", plan, rate=RATE, env=FAULT_ENV, limit_s=240)]
            wanted = sum(line.startswith("fault") for line in plan)
        return kind_result(kind, jobs, wanted)
    run.__doc__ = f"{KINDS[kind][2]}, in the middle of every operation, at either end"
    return run


def communicators(context):
    """faults under split, non-blocking and several communicators, and under 6 ranks on 3 hosts"""
    plan = ["comm a", "comm b blocking=0", "split h from=a by=half", "split p from=a by=parity"]
    plan += [fault_line(kind, comm, coll, host, 1 + i % 3, turn=i)
             for i, (kind, comm, coll, host) in enumerate((
                 ("cut", "b", "all_reduce", 0), ("port_down", "b", "all_to_all", 1),
                 ("cut", "h", "all_reduce", 1), ("ack_loss", "h", "all_gather", 2),
                 ("port_down", "p", "all_reduce", 3), ("cut", "p", "ring", 2),
                 ("second", "a", "all_reduce", 1), ("port_down", "a", "reduce_scatter", 2)))]
    shared = ["comm a"] + [fault_line(kind, "a", coll, host, 1, turn=i)
                           for i, (kind, coll, host) in enumerate((
                               ("cut", "all_reduce", 1), ("port_down", "all_to_all", 1),
                               ("ack_loss", "all_gather", 2), ("cut", "ring", 0)))]
    jobs = [job.run(context, "braid", plan, ranks=4, rate=RATE, env=FAULT_ENV, limit_s=120),
            job.run(context, "braid", shared, ranks=6, hosts=3, rails=3, rate=RATE, env=FAULT_ENV,
                    limit_s=120)]
    wanted = sum(line.startswith("fault") for line in plan + shared)
    return kind_result("several", jobs, wanted)


def pause(context):
    """a rank stopped for 0.8 s and for 20 s in the middle of an all-reduce: waited for"""
    times = (800,) if context.quick else (800, 20000)
    done = job.run(context, "braid", ["comm a"] + [f"pause a rank=1 ms={ms} bytes=256M iters=3"
                                                  for ms in times] + ["op a bytes=16M"],
                   rate=RATE, limit_s=90, step_limit_s=40, mps=False)
    result = summary([done], "")
    downs = done.count_events("path_fault") + done.count_events("path_down")
    result["ok"] = result["ok"] and downs == 0
    result["summary"] += f"stopped for {', '.join(str(ms) for ms in times)} ms; {downs} fail-overs"
    if downs:
        result["log"] = done.tail()
    return result


def kill(context):
    """a rank killed in the middle of all-reduces: the others see ncclRemoteError within 2 s"""
    done = job.run(context, "braid", ["comm a", "op a bytes=4M",
                                      "kill a rank=2 bytes=256M iters=8"], ranks=4, rate=RATE,
                   limit_s=60, step_limit_s=20, mps=False)
    step = next((s for s in done.steps if s["kind"] == "kill"), {"survivors": []})
    seen = [s["notice_ms"] for s in step["survivors"]]
    aborts = [s["abort_ms"] for s in step["survivors"]]
    errors = sorted({s["error"] for s in step["survivors"]})
    ok = done.ok and len(seen) == 3 and max(seen) < 2000 and errors == ["remote error"]
    result = {"ok": ok, "survivors": step["survivors"],
              "summary": f"{len(seen)} survivors, {', '.join(errors)} after "
                         f"{max(seen, default=0):.0f} ms at most; ncclCommAbort took "
                         f"{max(aborts, default=0):.0f} ms at most"}
    if not ok:
        result["log"] = done.tail()
    return result


def abort(context):
    """all rails cut, the communicator aborted while it hangs; then a new one"""
    rules = "+".join(f"cut,host=0,rail={r},bytes=500003" for r in range(4))
    heals = "+".join(f"heal,host=0,rail={r}" for r in range(4))
    done = job.run(context, "braid", [
        "comm base", "comm a", "op a bytes=4M",
        f"abort a rule={rules} heal={heals} hold_ms=800 bytes=64M iters=4", "comm b",
        f"op b {CORE}"], rate=RATE, limit_s=90, step_limit_s=30, mps=False)
    result = summary([done], "")
    step = next((s for s in done.steps if s["kind"] == "abort"), {})
    result["ok"] = result["ok"] and step.get("abort_ms", 99999) < 10000
    result["summary"] += f"ncclCommAbort took {step.get('abort_ms', '?')} ms"
    return result


def fault_table(results):
    """One row per kind, Braid beside the built-in transport; None when no such case ran."""
    rows = []
    baselines = {"built-in IB": results.get("baseline", {}).get("fates", {}),
                 "its port failover": results.get("builtin-failover", {}).get("fates", {})}
    for kind, (_, _, words) in KINDS.items():
        got = results.get(f"fault-{kind}")
        if not got or "runs" not in got:
            continue
        rows.append([words, f"{got['wrong']} of {got['elements']}",
                     f"{got['running']} of {got['runs']}", got["failed_over"],
                     f"{got['replayed'] / 1e6:.1f} MB", pair(got["notice_ms"]),
                     pair(got["repair_ms"]), pair(got["after"]), pair(got["back_ms"]),
                     *(fates.get(kind, {}).get("fate", "not run") for fates in baselines.values())])
    if not rows:
        return None
    return {"title": "A fault in the middle of collectives, 2 ranks as 2 hosts, 4 rails of "
                     f"{RATE} MB/s (8 where NICs die); times are median / worst",
            "columns": ["fault", "elements wrong", "hit a running collective", "failed over",
                        "sent again", "noticed after, ms", "slowest path repaired in, ms",
                        "time after / before", "used again after, ms", *baselines],
            "rows": rows}


def pair(values):
    return "–" if not values else f"{values[0]:g} / {values[1]:g}"
