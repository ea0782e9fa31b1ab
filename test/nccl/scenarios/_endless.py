#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank that sums again and again until it has done its steps or something is raised."""

import argparse
import sys
import time

import torch
import torch.distributed as dist

import _rank


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=16 << 20)
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--timeout", type=int, default=120, help="PyTorch's own, in seconds")
    args = parser.parse_args(argv)
    device = _rank.begin(args.timeout)
    wrong = step = 0
    try:
        for step in range(args.steps):
            out = _rank.pattern(args.bytes // 4, _rank.RANK, step, device)
            dist.all_reduce(out, async_op=True).wait()
            torch.cuda.synchronize()
            bad = _rank.wrong_elements(out, step)
            wrong += bad
            _rank.tell(step=step, mono_ns=time.monotonic_ns(), wrong=bad)
    except Exception as error:  # whatever the framework makes of it is what we are here to see
        _rank.tell(raised=type(error).__name__, mono_ns=time.monotonic_ns(),
                   text=str(error)[:300])
        sys.stdout.flush()
        return 3
    _rank.end()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
