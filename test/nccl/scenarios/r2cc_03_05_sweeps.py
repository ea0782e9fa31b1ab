#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""R2CC tests 03 to 05: all-reduce sweeps, healthy and with a rail out from the start.

Theirs go from 8 B to 4 GiB with nccl-tests, and the failure is declared; here every element is
checked and the rail is really dead before the first byte. Sizes are scaled down."""

import sys

import _run

LIMIT_S = 200
SIZES = [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20]
REPEAT = 3
THEIRS_GBPS = {"healthy": 3.53, "rail out": 2.35}


def options(parser):
    parser.add_argument("--rate", type=int, default=200, help="MB/s per rail and direction")
    parser.add_argument("--sizes", default=",".join(str(size) for size in SIZES))


def sweep(args, name, rules):
    options_given = ["--sizes", args.sizes, "--repeat", REPEAT, "--warmup", 2]
    for rule in rules:
        options_given += ["--rule", f"0:{rule}"]
    result = _run.run(args, "braid", "_allreduce.py", options_given, rate=args.rate,
                      env={"NCCL_ALGO": "Ring"})
    best = {}
    for step in _run.steps(result):
        best.setdefault(step["bytes"], []).append(step["seconds"])
    print(f"{name}: {len(_run.steps(result))} steps, {_run.wrong(result)} wrong", flush=True)
    return result, {size: min(times) for size, times in best.items()}


def bus_gbps(size, seconds):
    return size / seconds * 2 * (_run.RANKS - 1) / _run.RANKS / 1e9


def body(args):
    sizes = [int(text) for text in args.sizes.split(",")]
    cut = f"cut host={_run.FAILED_HOST} rail={_run.FAILED_RAIL}"
    healthy, healthy_s = sweep(args, "healthy", [])
    # The first iteration finds out; the best of three does not count it.
    out, out_s = sweep(args, "rail out", [cut])
    complete = all(len(times) == len(sizes) for times in (healthy_s, out_s))
    ok = complete and all(_run.is_clean(r) and _run.wrong(r) == 0 and _run.uses(r, "Braid")
                          for r in (healthy, out))
    rows = [[size, f"{healthy_s[size] * 1000:.2f}", f"{bus_gbps(size, healthy_s[size]):.3f}",
             f"{out_s[size] * 1000:.2f}", f"{bus_gbps(size, out_s[size]):.3f}",
             f"{out_s[size] / healthy_s[size]:.2f}"]
            for size in sizes if size in healthy_s and size in out_s]
    rows.append(["R2CC, 4 GiB", "", THEIRS_GBPS["healthy"], "", THEIRS_GBPS["rail out"],
                 f"{THEIRS_GBPS['healthy'] / THEIRS_GBPS['rail out']:.2f}"])
    last = sizes[-1]
    ratio = out_s[last] / healthy_s[last] if complete else 0
    summary = (f"{_run.wrong(healthy) + _run.wrong(out)} wrong elements; the largest size takes "
               f"{ratio:.2f} x healthy with one of three rails out (ideal 1.50, R2CC 1.50)")
    table = {"title": f"R2CC tests 03 to 05: all-reduce on 3 hosts x 2 ranks x 3 rails at "
                      f"{args.rate} MB/s; bus bandwidth in GB/s",
             "columns": ["bytes", "healthy, ms", "GB/s", "rail out, ms", "GB/s", "ratio"],
             "rows": rows}
    return _run.report(args, ok, summary, [table], {"healthy": healthy_s, "out": out_s})


if __name__ == "__main__":
    sys.exit(_run.main(__doc__, body, sys.argv[1:], options))
