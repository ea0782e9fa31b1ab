# SPDX-License-Identifier: Apache-2.0
"""Case `fault-spread`: faults over operations, types, reductions, places and registration, spread so that
each meets each, in worlds of two to eight ranks. The steps of one world pair every operation with every
type; from world to world, reduction, place, registration and fault move on."""

import concurrent.futures

import faults
import job
from faults import COLLS, TYPES

REDS = ("sum", "max", "min", "avg")
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
KINDS = ("cut", "port_down", "ack_loss", "cut_tx", "cut_rx")
# ranks, hosts, rails of each, bytes of an operation. Two ranks of one host reach each other from its rails
# to its rails, not always from one to itself: losing one can take two paths, so two rails are too few.
WORLDS = ((2, 2, 4, "16M"), (4, 4, 4, "16M"), (6, 3, 3, "12M"), (8, 4, 4, "8M"))
STEPS = len(COLLS) * len(TYPES)  # no common factor: the i-th of each is every pair once
QUICK_STEPS = 7
BYTES_AT = 300007
AT_ONCE = 2


def end_of(kind, coll, hosts, turn):
    """The host that has the fault. Root is rank 0 on host 0: where one way is cut, one that sends (or
    receives) data in that operation."""
    if kind in ("cut_tx", "cut_rx") and coll in ("broadcast", "reduce"):
        return 0 if (kind == "cut_tx") == (coll == "broadcast") else 1
    return turn % hosts


def red_of(coll, type_name, ranks, number):
    """Floats cannot be divided exactly by 3 or 6."""
    if coll not in REDUCING:
        return "sum"
    red = REDS[number % len(REDS)]
    is_exact = type_name.startswith("int") or ranks & (ranks - 1) == 0
    return red if is_exact or red != "avg" else "max"


def step_line(world, turn):
    ranks, hosts, rails, size = WORLDS[world]
    coll, type_name = COLLS[turn % len(COLLS)], TYPES[turn % len(TYPES)]
    diagonal = turn % len(COLLS) + turn % len(TYPES) + world
    kind = KINDS[diagonal % len(KINDS)]
    host, rail = end_of(kind, coll, hosts, turn), (turn + world) % rails
    in_place = (turn + world) % 2 == 1 and coll not in ("all_to_all", "ring")
    rule, heal = faults.rules_of(kind, host, rail, (rail + 1) % rails, f"bytes={BYTES_AT}")
    return (f"fault a coll={coll} type={type_name} red={red_of(coll, type_name, ranks, turn // 4 + world)} "
            f"bytes={size} root=0 place={'in' if in_place else 'out'} "
            f"reg={(turn // 2 + world // 2) % 2} label={kind}/{host} rule={rule} heal={heal}")


def plan_of(world, quick):
    return ["comm a"] + [step_line(world, turn) for turn in range(QUICK_STEPS if quick else STEPS)]


def run(context):
    """faults over every pair of operation, type, reduction, place, registration; 2 to 8 ranks"""
    plans = [plan_of(world, context.quick) for world in range(len(WORLDS))]

    def one(world):
        ranks, hosts, count, _ = WORLDS[world]
        return job.run(context, "braid", plans[world], ranks=ranks, hosts=hosts, rails=count,
                       rate=faults.RATE, env=faults.FAULT_ENV, limit_s=170, step_limit_s=30)

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = list(pool.map(one, range(len(WORLDS))))
    return spread_result(jobs, [len(plan) - 1 for plan in plans])


def spread_result(jobs, wanted):
    """Each world is judged by itself: faults of one cannot stand in for those of another."""
    parts = [faults.kind_result("spread", [done], count) for done, count in zip(jobs, wanted)]
    rows = [[f"{ranks} ranks on {hosts} hosts, {rails} rails each", f"{p['wrong']} of {p['elements']}",
             f"{p['running']} of {p['runs']}", p["failed_over"], faults.pair(p["notice_ms"]),
             faults.pair(p["repair_ms"])]
            for (ranks, hosts, rails, _), p in zip(WORLDS, parts)]
    wrong, elements = sum(p["wrong"] for p in parts), sum(p["elements"] for p in parts)
    result = {"ok": all(p["ok"] for p in parts), "wrong": wrong, "elements": elements, "parts": parts,
              "summary": f"{wrong} of {elements} elements wrong; {sum(p['running'] for p in parts)} of "
                         f"{sum(wanted)} faults hit a running collective, "
                         f"{sum(p['failed_over'] for p in parts)} failed over" +
                         "".join(f"; {row[0]}: {p['summary']}" for row, p in zip(rows, parts)
                                 if not p["ok"]),
              "tables": [{"title": f"{len(COLLS)} operations x {len(TYPES)} types in each world, "
                                   f"{len(REDS)} reductions, in and out of place, registered or not, "
                                   f"{len(KINDS)} kinds of fault spread over them; times in ms, median "
                                   "/ worst",
                          "columns": ["world", "elements wrong", "hit a running collective",
                                      "failed over", "noticed after", "slowest path repaired in"],
                          "rows": rows}]}
    if not result["ok"]:
        result["log"] = "\n".join(p["log"] for p in parts if "log" in p)
    return result
