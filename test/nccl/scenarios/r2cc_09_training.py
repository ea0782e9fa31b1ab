#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""R2CC test 09: a small GPT trained with DDP; all hashes equal through failures to the end.

Theirs is GPT-2 124M for 1000 updates, bit-identical up to the update that the failure hits. Here a
GPT of 3.4 million parameters, and gradients and parameters must be equal to the end: built-in IB
healthy, Braid healthy, one rail cut for good, and a rail cut, back, and another cut."""

import sys

import _run

LIMIT_S = 300
STEPS = 40
CUT_AT, BACK_AT, AGAIN_AT = 10, 20, 30


def options(parser):
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--runs", default="0,1,2,3", help="which of the four; the first is what "
                        "the others are compared with")


def cut(step, rail, host=_run.FAILED_HOST):
    return f"{step}:cut host={host} rail={rail} bytes=1000000"


def runs():
    heal = f"{BACK_AT}:heal host={_run.FAILED_HOST} rail=1"
    return [
        ("built-in IB, healthy", "ib", [], 0),
        ("Braid, healthy", "braid", [], 0),
        ("Braid, rail cut for good", "braid", [cut(CUT_AT, 1)], 0),
        ("Braid, cut, back, another cut", "braid", [cut(CUT_AT, 1), heal, cut(AGAIN_AT, 2, 1)],
         AGAIN_AT),
    ]


def hashes(result):
    return [(s["step"], s["grads"], s["params"]) for s in _run.steps(result)]


def ranks_agree(result):
    """The first and the last rank hold the same gradients and parameters at each step."""
    return hashes(result) == [(s["step"], s["grads"], s["params"])
                              for s in _run.steps(result, _run.RANKS - 1)]


def equal_steps(result, base):
    return sum(a == b for a, b in zip(hashes(result), hashes(base)))


def one(args, name, net, rules, wait_up):
    given = ["--steps", args.steps] + [word for rule in rules for word in ("--rule", rule)]
    if wait_up:
        given += ["--wait-up", wait_up]
    env = {**_run.FIXED_ORDER, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    result = _run.run(args, net, "_gpt.py", given, limit_s=75, env=env)
    steps = _run.steps(result)
    print(f"{name}: {len(steps)} steps, {result['seconds']:.0f} s, "
          f"{_run.count(result, 'path_down')} path ends down, "
          f"{_run.count(result, 'path_up')} back", flush=True)
    return result


def row(name, rules, result, base):
    steps = _run.steps(result)
    same = equal_steps(result, base)
    first, last = (steps[0]["loss"], steps[-1]["loss"]) if steps else (0, 0)
    return [name, f"{same} of {len(steps)}", f"{first:.4f} to {last:.4f}",
            steps[-1]["params"][:12] if steps else "",
            f"{_run.median([s['seconds'] for s in steps]) * 1000:.0f} / "
            f"{max([s['seconds'] for s in steps[1:]], default=0) * 1000:.0f}",
            f"{_run.count(result, 'path_down')} / {_run.count(result, 'path_up')}"]


def as_meant(args, result, rules, wait_up):
    """The faults hit, the rails went and came as the run wants it."""
    downs, ups = _run.count(result, "path_down"), _run.count(result, "path_up")
    cuts = sum(":cut " in rule for rule in rules)
    fired = sum("cut" in f.get("text", "") for f in result["fired"])
    return (_run.is_clean(result) and len(_run.steps(result)) == args.steps and
            ranks_agree(result) and fired == cuts and (downs > 0) == (cuts > 0) and
            (ups > 0) == bool(wait_up))


def body(args):
    rows, ok, base = [], True, None
    chosen = [runs()[int(number)] for number in args.runs.split(",")]
    for name, net, rules, wait_up in chosen:
        result = one(args, name, net, rules, wait_up)
        base = base or result
        right = as_meant(args, result, rules, wait_up) and \
            equal_steps(result, base) == args.steps
        ok = ok and right
        rows.append(row(name, rules, result, base))
    rows.append(["R2CC, cut at update 400", "equal up to 401", "", "", "500 / 1400", "1 / never"])
    summary = (f"{'all' if ok else 'NOT all'} hashes equal over {args.steps} updates and "
               f"{len(chosen)} runs, through failures to the end (R2CC: up to the update hit)")
    table = {"title": "R2CC test 09: a GPT of 3.4 million parameters, DDP on 3 hosts x 2 ranks x 3 "
                      "rails; SHA-256 of reduced gradients and of parameters at each update",
             "columns": ["run", "updates equal to the first run", "loss", "last parameters",
                         "ms per update: median / worst", "path ends down / back"],
             "rows": rows}
    return _run.report(args, ok, summary, [table])


if __name__ == "__main__":
    sys.exit(_run.main(__doc__, body, sys.argv[1:], options))
