# SPDX-License-Identifier: Apache-2.0
"""Cases without a fault: every operation, type, size, algorithm and protocol, communicators of every
kind, more ranks than GPUs, and Braid beside NCCL's own transport."""

import collections
import os
import re
import statistics

import job
import launch

COLLS = "all_reduce,all_gather,reduce_scatter,broadcast,reduce,all_to_all,ring"
TYPES = "float,half,bfloat16,int32,int64"
CORE = f"coll={COLLS} type=float,bfloat16,int64 bytes=8,1000004,4M place=out,in"
# Two ranks of one host must not be the same machine for NCCL, or they would not use the network;
# in the tables a host is one of the fabric, with its rails.


def summary(done, what):
    """The result of a case that ran some jobs and checks their elements."""
    wrong, elements = sum(j.wrong for j in done), sum(j.elements for j in done)
    networks = sorted({j.network() for j in done})
    ok = all(j.ok for j in done) and wrong == 0 and elements > 0 and networks == ["Braid"]
    steps = sum(len(j.steps) for j in done)
    result = {"ok": ok, "summary": f"{wrong} of {elements} elements wrong, {steps} steps; {what}",
              "wrong": wrong, "elements": elements, "steps": steps, "networks": networks}
    if not ok:
        result["log"] = "\n".join(j.tail() for j in done if not j.ok or j.wrong)
        result["details"] = [{"code": j.code, "job": j.job} for j in done]
    return result


def matrix(context):
    """every operation, type and reduction, in and out of place, registered buffers, 0 B to 4 MiB"""
    done = job.run(context, "braid", [
        "comm a",
        f"op a coll={COLLS} type={TYPES} red=sum,max,min,avg place=out,in bytes=0,8,1000004",
        f"op a coll={COLLS} type={TYPES} red=sum place=out,in bytes=4M reg=0,1",
    ], limit_s=150)
    return summary([done], "7 operations, 5 types, 4 reductions, in and out of place, registered; "
                           f"NCCL {done.version()} took the plugin as {done.interface()}")


def used_choices(log):
    """Algorithm and protocol of each operation, as NCCL's log tells them."""
    return {(m[1].lower(), m[2].lower()) for m in
            re.finditer(r"Algo (\S+) proto (\S+)", log, re.IGNORECASE)}


def protocols(context):
    """ring and tree, LL and Simple, forced; NCCL's log must say that they were used"""
    # LL128 makes the GPU look at whole lines of 128 bytes, which in host memory it can see half
    # written: forced there it is wrong now and then, on any transport. See gpu_direct.py.
    plan = ["comm base"]
    for algo in ("Ring", "Tree"):
        for proto in ("LL", "Simple"):
            plan += [f"comm a algo={algo} proto={proto}",
                     f"op a type={TYPES} red=sum,max bytes=8,65540,1000004 place=in,out",
                     "op a type=float bytes=16M iters=2", "destroy a"]
    for proto in ("LL", "Simple"):
        plan += [f"comm a algo=Ring proto={proto}",
                 "op a coll=all_gather,reduce_scatter,broadcast,reduce,all_to_all,ring "
                 "type=float,half bytes=8,1000004,4M", "destroy a"]
    done = job.run(context, "braid", plan, limit_s=150)
    result = summary([done], "")
    used = used_choices(done.log)
    missing = [f"{a}/{p}" for a in ("ring", "tree") for p in ("ll", "simple")
               if (a, p) not in used]
    result["ok"] = result["ok"] and not missing
    result["used"] = sorted("/".join(pair) for pair in used)
    result["summary"] += ("NCCL used " + ", ".join(result["used"]) if used else
                          "NCCL's log names no algorithm")
    if missing:
        result["summary"] += "; not used: " + ", ".join(missing)
    return result


def large(context):
    """buffers of 1 and 4 GiB"""
    done = job.run(context, "braid", [
        "comm a", "op a coll=all_reduce type=float bytes=1G,4G place=in",
        "op a coll=all_reduce type=bfloat16 bytes=4G place=out reg=1",
        "op a coll=all_gather,reduce_scatter,broadcast,reduce type=int32 bytes=4G place=in",
        "op a coll=all_to_all,ring type=half bytes=4G",
    ], limit_s=170, step_limit_s=60)
    return summary([done], "1 and 4 GiB")


def communicators(context):
    """several at once, split, non-blocking; 4 ranks as 4 hosts"""
    done = job.run(context, "braid", [
        "comm a", "comm b blocking=0", "split h from=a by=half", "split p from=a by=parity",
        "split s from=b by=same",
        f"op b,h {CORE} iters=1", "op a,b,p type=float bytes=4M iters=3",
        f"op s coll={COLLS} type=int32 bytes=1M", "op p,h coll=all_reduce bytes=8,4M iters=3",
        "destroy h", "op p,s bytes=1M", "destroy b", "op s,a bytes=1M",
    ], ranks=4, limit_s=120)
    return summary([done], "2 made apart, 3 split off, up to 3 at once, one of them non-blocking")


def plain_name(context):
    """NCCL 2.27 to 2.29 forget NCCL_NET_PLUGIN when the last communicator ends."""
    def prepare(folder, env):
        os.symlink(os.path.join(context.build, "libnccl-net-braid.so"),
                   os.path.join(folder, "libnccl-net.so"))
        env["LD_LIBRARY_PATH"] = folder + ":" + env["LD_LIBRARY_PATH"]
    return prepare


def reload(context):
    """the last communicator ends, so NCCL unloads the plugin; then anew, 4 times"""
    plan = []
    for _ in range(4):
        plan += ["comm a", "op a bytes=8,4M type=float,int64", "destroy a"]
    done = job.run(context, "braid", plan, prepare=plain_name(context))
    result = summary([done], "")
    loads = len(re.findall(r"(?:Successfully loaded|Loaded) (?:external )?(?:network|net) plugin",
                           done.log, re.IGNORECASE))
    result["loads"] = loads
    result["ok"] = result["ok"] and loads >= 8
    result["summary"] += f"NCCL loaded the plugin {loads} times in 2 ranks"
    bare = job.run(context, "braid", ["comm a", "op a", "destroy a", "comm a", "op a"])
    kept = job.run(context, "braid", ["comm a", "op a", "destroy a", "comm a", "op a"],
                   env={"NCCL_NET_PLUGIN_REF_COUNT": "1"})
    result["ok"] = result["ok"] and kept.ok
    result["summary"] += ("; without a libnccl-net.so beside it a second one " +
                          ("works too" if bare.ok else "fails: " + ", ".join(bare.errors())) +
                          ", with NCCL_NET_PLUGIN_REF_COUNT=1 it " +
                          ("works" if kept.ok else "fails"))
    return result


def corrupt(context):
    """the check itself: in each type one element is spoiled on the GPU, which must be noticed"""
    types = TYPES.split(",")
    plan = ["comm a"] + [f"op a type={name} bytes=4M" for name in types]
    done = [job.run(context, "braid", plan, limit_s=40, options=("--corrupt", str(2 + at)))
            for at in range(len(types))]
    return corrupt_result(done, types)


def corrupt_result(done, types):
    """Each job must say that exactly the spoiled step is wrong, by one element."""
    found = [[step["wrong"] for step in j.steps] for j in done]
    wanted = [[int(i == at) for i in range(len(types))] for at in range(len(types))]
    noticed = sum(f == w and not j.ok for f, w, j in zip(found, wanted, done))
    result = {"ok": noticed == len(types), "found": found,
              "summary": f"{noticed} of {len(types)} spoiled elements noticed, and nothing else"}
    if not result["ok"]:
        result["log"] = "\n".join(j.tail() for j in done)
    return result


def ranks6(context):
    """6 ranks as 3 hosts with 3 rails each"""
    done = job.run(context, "braid", ["comm a", f"op a {CORE}", "op a bytes=256M place=in"],
                   ranks=6, hosts=3, rails=3, limit_s=150, step_limit_s=60)
    return summary([done], "two ranks share a host's rails")


def ranks4(context):
    """4 ranks as 4 hosts, ring and tree"""
    plan = ["comm base"]
    for algo in ("Ring", "Tree"):
        plan += [f"comm a algo={algo}", "op a type=float,int64 bytes=8,1000004,64M place=in",
                 "destroy a"]
    done = job.run(context, "braid", plan + [f"op base {CORE}"], ranks=4, limit_s=150,
                   step_limit_s=60)
    return summary([done], "")


SPEED_SMALL = ((8, 1000, 20), (1 << 10, 1000, 20), (16 << 10, 600, 20), (64 << 10, 300, 10),
               (1 << 20, 80, 5))
SPEED_BIG = ((16 << 20, 20, 2), (128 << 20, 4, 1), (1 << 30, 1, 1))
SPEED_WALKS = (SPEED_SMALL + SPEED_BIG, SPEED_SMALL, SPEED_SMALL, SPEED_SMALL + SPEED_BIG,
               SPEED_SMALL)
SPEED_RATES = (0, 1000)
SPEED_COLLS = ("all_reduce", "ring")
SPEED_ORDER = ("ib", "braid", "braid", "ib")


def speed_plan():
    """The sizes are walked several times, so that the samples of one lie apart."""
    return ["comm a"] + [f"bench a coll={','.join(SPEED_COLLS)} bytes={size} iters={iters} "
                         f"warm={warm}" for walk in SPEED_WALKS for size, iters, warm in walk]


def speed_wanted():
    """How many samples of each operation and size a job gives, in the order of the tables."""
    return collections.Counter((coll, size) for coll in SPEED_COLLS
                               for walk in SPEED_WALKS for size, _, _ in walk)


def speed_samples(jobs):
    """ns a call by operation and size, of all jobs together."""
    found = {}
    for done in jobs:
        for step in done.steps:
            found.setdefault((step["coll"], step["bytes"]), []).append(step["ns_each"])
    return found


def size_name(size):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def speed_missing(samples, jobs):
    """What that many jobs do not have every sample of."""
    return [f"{coll} of {size_name(size)}" for (coll, size), count in speed_wanted().items()
            if len(samples.get((coll, size), ())) != count * jobs]


def speed_rows(braid, ib):
    """The columns of speed_result()'s tables, from the samples of both."""
    rows = []
    for coll, size in speed_wanted():
        ours, others = braid[coll, size], ib[coll, size]
        mine, theirs = statistics.median(ours), statistics.median(others)
        rows.append([coll, size_name(size), f"{mine / 1000:.1f}", f"{theirs / 1000:.1f}",
                     f"{size / mine:.2f}", f"{size / theirs:.2f}", f"{theirs / mine:.2f}",
                     f"{min(others) / min(ours):.2f}"])
    return rows


def compact_tables(rows_of):
    """One row an operation, as README.md has it: IB's time / Braid's by size."""
    sizes = [size_name(size) for coll, size in speed_wanted() if coll == SPEED_COLLS[0]]
    return [{"title": f"Built-in IB's time / Braid's, 4 rails each (1 is par), {word}",
             "columns": ["", *sizes],
             "rows": [[f"{coll}, {what}", *(row[column] for row in rows if row[0] == coll)]
                      for what, rows in rows_of.items() for coll in SPEED_COLLS]}
            for word, column in (("medians", -2), ("minima", -1))]


def speed(context):
    """Braid beside NCCL's own IB transport, 4 rails each, 8 B to 1 GiB, runs taken in turn"""
    spin_us = launch.spin_us(ranks=2, rails=4)
    jobs = {rate: {"braid": [], "ib": []} for rate in SPEED_RATES}
    for rate in SPEED_RATES:
        for net in SPEED_ORDER:
            jobs[rate][net].append(job.run(
                context, net, speed_plan(), rate=rate, limit_s=90, step_limit_s=60,
                env={"NCCL_DEBUG_SUBSYS": "INIT", "FABRIC_SPIN_US": spin_us}))
    return speed_result(jobs, spin_us)


def speed_result(jobs, spin_us):
    tables, words, problems, rows_of = [], [], [], {}
    for rate, by_net in jobs.items():
        what = f"rails of {rate} MB/s" if rate else "rails as fast as the machine"
        samples = {net: speed_samples(done) for net, done in by_net.items()}
        missing = {net: speed_missing(samples[net], len(done)) for net, done in by_net.items()}
        if any(missing.values()):
            problems += [f"{what}: samples missing on {net}: {', '.join(names)}"
                         for net, names in missing.items() if names]
            continue
        rows = rows_of[what] = speed_rows(**samples)
        worst = min(rows, key=lambda row: float(row[-2]))
        words.append(f"{what}: Braid's worst is {worst[-2]} of IB's speed ({worst[0]}, {worst[1]})")
        tables.append({"title": f"Braid beside NCCL's built-in IB, 2 ranks as 2 hosts, 4 {what}; "
                                f"medians of {len(by_net['ib'])} runs each",
                       "columns": ["operation", "size", "Braid, us", "IB, us", "Braid, GB/s",
                                   "IB, GB/s", "IB's time / Braid's", "of minima"], "rows": rows})
    every = [done for by_net in jobs.values() for both in by_net.values() for done in both]
    wrong = sum(done.wrong for done in every)
    result = {"ok": not problems and wrong == 0 and all(done.ok for done in every),
              "summary": "; ".join([f"{wrong} wrong", f"FABRIC_SPIN_US={spin_us}", *words,
                                    *problems]),
              "tables": tables + compact_tables(rows_of)}
    if not result["ok"]:
        result["log"] = "\n".join(done.tail() for done in every if not done.ok)
    return result


RAILS_RATE = 250


def rails(context):
    """4 rate-limited rails beside one, and after 1 of 4 is lost; how much of their rate is used"""
    plan = ["comm a", "bench a bytes=128M iters=4 warm=1"]
    lost = ["comm a", "fault a bytes=128M rule=port_down,host=0,rail=1,bytes=1000003 after=4"]
    env = {"BRAID_REJOIN_MIN_MS": "0", "FABRIC_SPIN_US": launch.spin_us(ranks=2, rails=4)}
    return rails_result({name: job.run(context, net, lines, rails=count, rate=RAILS_RATE,
                                       limit_s=90, env=env)
                         for name, net, lines, count in (
                             ("4", "braid", plan, 4), ("1", "braid", plan, 1),
                             ("ib", "ib", plan, 4), ("lost", "braid", lost, 4))})


def rails_share(ns, count):
    """Of what that many rails carry one way in the time: each rank sends its 128 MiB once."""
    return (1 << 27) / ns * 1000 / (count * RAILS_RATE)


def rails_result(jobs):
    if not all(done.ok and done.steps for done in jobs.values()):
        return {"ok": False, "summary": "a job failed",
                "log": "\n".join(done.tail() for done in jobs.values() if not done.ok)}
    last = {name: done.steps[-1] for name, done in jobs.items()}
    times = {name: last[name]["ns_each"] for name in ("1", "4", "ib")}
    times |= {name: last["lost"][f"{name}_us"] * 1000 for name in ("healthy", "after")}
    wrong = sum(done.wrong for done in jobs.values())
    gain, beside = times["1"] / times["4"], times["ib"] / times["4"]
    ratio = times["after"] / times["healthy"]
    shares = {words: f"{rails_share(times[name], count):.2f}" for words, name, count in (
        ("1 rail", "1", 1), ("4 rails", "4", 4), ("4 before the loss", "healthy", 4),
        ("3 after it", "after", 3))}
    rows = [["4 rails beside 1", f"{gain:.2f} x", "4"],
            ["Braid beside built-in IB, 4 rails", f"{beside:.2f} x", "1"],
            ["share of the rails' rate used", shares["4 rails"], "1"],
            ["the same: " + ", ".join(shares), ", ".join(shares.values()), "1 each"],
            ["time with 1 of 4 rails lost beside healthy", f"{ratio:.3f} x", "1.333"]]
    return {"ok": wrong == 0, "summary": f"{wrong} wrong; 4 rails {gain:.2f} x one; 1 of 4 lost "
                                         f"{ratio:.3f} x the time", "rows": rows, "shares": shares,
            "tables": [{"title": f"all_reduce of 128 MiB, rails of {RAILS_RATE} MB/s each way",
                        "columns": ["", "measured", "ideal"], "rows": rows}]}
