#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank that sums a tensor over all ranks again and again, eagerly or by replaying one captured
CUDA graph; every element of every result is checked, and the rails' bytes are read in between."""

import argparse
import gc
import sys

import torch
import torch.distributed as dist

import _rank


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", required=True, help="bytes, comma separated")
    parser.add_argument("--repeat", type=int, default=1, help="iterations per size")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--graph", action="store_true", help="capture once, then replay")
    parser.add_argument("--counters", action="store_true")
    parser.add_argument("--wait-in-driver", action="store_true")
    parser.add_argument("--rule", action="append", default=[], metavar="STEP:RULE")
    parser.add_argument("--corrupt", type=int, default=-1, metavar="STEP",
                        help="self-test: spoil one element there")
    return parser.parse_args(argv)


class Eager:
    def __init__(self, count, device):
        self.out = torch.empty(count, device=device)

    def load(self, step):
        self.out.copy_(_rank.pattern(self.out.numel(), _rank.RANK, step, self.out.device))

    def run(self):
        dist.all_reduce(self.out)


class Graph(Eager):
    """Captured at construction, and never again."""

    def __init__(self, count, device):
        super().__init__(count, device)
        self.input = torch.zeros(count, device=device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.out.copy_(self.input)
            dist.all_reduce(self.out)
        torch.cuda.synchronize()

    def load(self, step):
        self.input.copy_(_rank.pattern(self.out.numel(), _rank.RANK, step, self.out.device))

    def run(self):
        self.graph.replay()


def run_step(args, work, size, step, before):
    _rank.rules_at(args.rule, step)
    work.load(step)
    _rank.barrier()
    seconds = _rank.timed(work.run)
    if step == args.corrupt and _rank.RANK == 1:
        work.out[work.out.numel() // 2] += 1
    line = {"step": step, "bytes": size, "seconds": seconds,
            "elements": work.out.numel(), "wrong": _rank.wrong_elements(work.out, step)}
    if args.counters:
        _rank.barrier()
        if _rank.RANK == 0:
            after = _rank.counters()
            line["moved"] = _rank.difference(after, before)
            before.clear()
            before.update(after)
        _rank.barrier()
    _rank.tell(**line)
    return line["wrong"]


def main(argv):
    args = parse(argv)
    if args.wait_in_driver:
        _rank.wait = torch.cuda.synchronize
    device = _rank.begin()
    warm = torch.ones(1 << 20, device=device)
    for _ in range(args.warmup):
        dist.all_reduce(warm)
    _rank.wait()
    before = _rank.counters() if args.counters and _rank.RANK == 0 else {}
    wrong = step = 0
    work = None
    for size in (int(text) for text in args.sizes.split(",")):
        work = (Graph if args.graph else Eager)(max(size // 4, 1), device)
        for _ in range(args.repeat):
            wrong += run_step(args, work, size, step, before)
            step += 1
    work = None  # a captured graph holds on to its communicator
    gc.collect()
    _rank.end()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
