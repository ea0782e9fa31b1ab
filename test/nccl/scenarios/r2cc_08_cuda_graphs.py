#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""R2CC test 08: an all-reduce captured in a CUDA graph, replayed through the failure and after.

Theirs runs at half speed until the graph is captured again (4.07 s against 2.03 s, then 3.04 s).
Here the graph is captured once and never again."""

import sys

import _run

LIMIT_S = 150
ITERATIONS = 10
CUT_AT = 2


def options(parser):
    parser.add_argument("--bytes", type=int, default=256 << 20)
    parser.add_argument("--rate", type=int, default=200, help="MB/s per rail and direction")


def body(args):
    rule = f"{CUT_AT}:cut host={_run.FAILED_HOST} rail={_run.FAILED_RAIL} bytes=30000000"
    result = _run.run(args, "braid", "_allreduce.py",
                      ["--sizes", args.bytes, "--repeat", ITERATIONS, "--graph", "--counters",
                       "--rule", rule], rate=args.rate, env={"NCCL_ALGO": "Ring"})
    steps = _run.steps(result)
    if len(steps) < ITERATIONS:
        return _run.report(args, False, f"{len(steps)} of {ITERATIONS} replays", [])
    healthy = _run.median([s["seconds"] for s in steps[:CUT_AT]])
    after = _run.median([s["seconds"] for s in steps[CUT_AT + 1:]])
    cut = steps[CUT_AT]["seconds"]
    ok = (_run.is_clean(result) and _run.wrong(result) == 0 and len(result["fired"]) > 0 and
          _run.uses(result, "Braid") and _run.cut_hit(steps, CUT_AT))
    summary = (f"{_run.wrong(result)} wrong elements; the same graph takes {after / healthy:.2f} x "
               f"healthy after losing 1 of 3 rails, no re-capture (R2CC 2.00, 1.49 re-captured)")
    rows = [["Braid, captured once", f"{healthy * 1000:.0f}", f"{cut * 1000:.0f}",
             f"{after * 1000:.0f}", f"{after / healthy:.2f}", "not needed"],
            ["R2CC", 2030, "", 4070, "2.00", "3040 ms after it: 1.49"]]
    table = {"title": f"R2CC test 08, {args.bytes >> 20} MiB at {args.rate} MB/s a rail (theirs 4 "
                      "GiB at 1200): one captured graph, replayed",
             "columns": ["", "healthy, ms", "the cut one", "after, same graph", "ratio",
                         "re-capture"], "rows": rows}
    return _run.report(args, ok and after / healthy <= _run.ratio_limit(args), summary, [table],
                       {"seconds": [s["seconds"] for s in steps], "limit": _run.ratio_limit(args),
                        "codes": [str(c) for c in result["codes"]]})


if __name__ == "__main__":
    sys.exit(_run.main(__doc__, body, sys.argv[1:], options))
