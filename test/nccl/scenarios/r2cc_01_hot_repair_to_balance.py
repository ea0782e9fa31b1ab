#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""R2CC test 01: ten all-reduces, 3 hosts x 2 ranks x 3 rails, one rail cut in the third.

Theirs: 4 GiB on rails of 1.2 GB/s, host 1's middle adapter cut by its switch 4 s into the run. Here
the size is scaled down and the cut comes at an exact byte. With two GPUs the two ranks of a host
talk through its memory, as theirs do; ranks that share one GPU send all over the network."""

import sys

import _run

LIMIT_S = 150
ITERATIONS = 10
CUT_AT = 2
THEIRS_MS = {"healthy": 2040, "cut": 3539, "after": 3040}
THEIRS_MIB = {"healthy": [7032, 7032, 7032], "after": [7078, 7078, 7078]}


def options(parser):
    parser.add_argument("--bytes", type=int, default=256 << 20)
    parser.add_argument("--rate", type=int, default=200, help="MB/s per rail and direction")
    parser.add_argument("--corrupt", type=int, default=-1, metavar="STEP",
                        help="self-test: spoil one element there; the run must fail")


def host_mib(step, host):
    return sum(_run.received(step, host, rail) for rail in range(_run.RAILS)) / 2**20


def receive_rows(steps):
    rows = []
    for step in steps:
        cells = [f"{step['step'] + 1}", f"{step['seconds'] * 1000:.0f}"]
        for host in range(_run.HOSTS):
            cells.append(" / ".join(f"{_run.received(step, host, rail) / 2**20:.0f}"
                                    for rail in range(_run.RAILS)))
        rows.append(cells + [step["wrong"]])
    return rows


def body(args):
    # Sent and received count: half of each rail's share.
    share = args.bytes * 2 * (_run.RANKS - 1) // _run.RANKS // _run.RAILS
    rule = f"{CUT_AT}:cut host={_run.FAILED_HOST} rail={_run.FAILED_RAIL} dir=both bytes={share}"
    result = _run.run(args, "braid", "_allreduce.py",
                      ["--sizes", args.bytes, "--repeat", ITERATIONS, "--counters",
                       "--rule", rule, "--corrupt", args.corrupt], rate=args.rate,
                      env={"NCCL_ALGO": "Ring"})
    steps = _run.steps(result)
    if len(steps) < ITERATIONS:
        return _run.report(args, False, f"{len(steps)} of {ITERATIONS} iterations", [])
    healthy = _run.median([s["seconds"] for s in steps[:CUT_AT]])
    after = _run.median([s["seconds"] for s in steps[CUT_AT + 1:]])
    cut = steps[CUT_AT]["seconds"]
    ok = (_run.is_clean(result) and _run.wrong(result) == 0 and _run.cut_hit(steps, CUT_AT) and
          _run.uses(result, "Braid") and after / healthy <= _run.ratio_limit(args))
    summary = (f"{_run.wrong(result)} wrong elements on any rank; ms healthy / cut / after "
               f"{healthy * 1000:.0f} / {cut * 1000:.0f} / {after * 1000:.0f}: after is "
               f"{after / healthy:.2f} x healthy (R2CC 1.49), the cut costs "
               f"{(cut - after) * 1000:.0f} ms over that (R2CC 499)")
    tables = [
        {"title": f"R2CC test 01, {args.bytes >> 20} MiB at {args.rate} MB/s a rail (theirs 4 GiB "
                  f"at 1200); the two ranks of a host talk through {_run.between(args)}",
         "columns": ["", "healthy", "the cut one", "after", "after/healthy"],
         "rows": [["Braid, ms", f"{healthy * 1000:.0f}", f"{cut * 1000:.0f}",
                   f"{after * 1000:.0f}", f"{after / healthy:.2f}"],
                  ["R2CC, ms", *THEIRS_MS.values(),
                   f"{THEIRS_MS['after'] / THEIRS_MS['healthy']:.2f}"]]},
        {"title": "MiB received per all-reduce and host, all rails",
         "columns": ["", *(f"host {h + 1}" for h in range(_run.HOSTS))],
         "rows": [["Braid, healthy", *(f"{host_mib(steps[1], h):.0f}" for h in range(_run.HOSTS))],
                  ["Braid, after", *(f"{host_mib(steps[-1], h):.0f}" for h in range(_run.HOSTS))],
                  *([f"R2CC, {name}", *row] for name, row in THEIRS_MIB.items())]},
        {"title": "MiB received per iteration and rail; host 1's middle rail is cut in the third",
         "columns": ["iteration", "ms", *(f"host {h + 1}" for h in range(_run.HOSTS)), "wrong"],
         "rows": receive_rows(steps)},
    ]
    return _run.report(args, ok, summary, tables,
                       {"steps": steps, "replayed": _run.replayed(result),
                        "fired": result["fired"], "codes": [str(c) for c in result["codes"]]})


if __name__ == "__main__":
    sys.exit(_run.main(__doc__, body, sys.argv[1:], options))
