#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of scripts/nccl-check: unmodified NCCL through PyTorch, every element checked.

Values are small integers hashed from (index, rank, step), so sums are exact in any order. A result
is compared with what every rank would have sent, on the GPU, element by element. One JSON line per
step goes to standard output, and one when the process group is there. Where it hangs, every thread's
stack goes to standard error.
"""

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

IMPORTED_S = time.monotonic()


def pattern(count, rank, step, device):
    """int32 values 0..1023 for one rank and step; every element depends on its index."""
    index = torch.arange(count, dtype=torch.int32, device=device)
    mixed = index * 747796405 + (rank + 1) * 277803737 + (step + 1) * 1013904223
    return (mixed >> 9) & 1023


def all_reduce(count, rank, world, step, device):
    out = pattern(count, rank, step, device)
    dist.all_reduce(out)
    want = sum(pattern(count, r, step, device) for r in range(world))
    return out, want


def all_gather(count, rank, world, step, device):
    part = max(count // world, 1)
    out = torch.empty(part * world, dtype=torch.int32, device=device)
    dist.all_gather_into_tensor(out, pattern(part, rank, step, device))
    want = torch.cat([pattern(part, r, step, device) for r in range(world)])
    return out, want


def reduce_scatter(count, rank, world, step, device):
    part = max(count // world, 1)
    out = torch.empty(part, dtype=torch.int32, device=device)
    dist.reduce_scatter_tensor(out, pattern(part * world, rank, step, device))
    want = sum(pattern(part * world, r, step, device) for r in range(world))
    return out, want[rank * part:(rank + 1) * part]


def broadcast(count, rank, world, step, device):
    root = step % world
    out = pattern(count, rank, step, device)
    dist.broadcast(out, root)
    return out, pattern(count, root, step, device)


def send_recv(count, rank, world, step, device):
    before, after = (rank - 1) % world, (rank + 1) % world
    out = torch.empty(count, dtype=torch.int32, device=device)
    work = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, pattern(count, rank, step, device), after),
        dist.P2POp(dist.irecv, out, before),
    ])
    for item in work:
        item.wait()
    return out, pattern(count, before, step, device)


OPS = {call.__name__: call for call in (all_reduce, all_gather, reduce_scatter, broadcast, send_recv)}


def tell(**line):
    print(json.dumps(line), flush=True)


def install_rules(args, rank, step):
    """Rules of this step go to the fabric before any rank begins it."""
    for rule in args.rule:
        at, text = rule.split(":", 1)
        if int(at) != step:
            continue
        if rank == 0:
            subprocess.run([args.fabricctl, "--dir", os.environ["FABRIC_DIR"], "fault", text],
                           check=True, timeout=20, stdout=sys.stderr)
        dist.barrier()


def run_step(args, op, size, step, rank, world, device):
    torch.cuda.synchronize()
    start_ns = time.monotonic_ns()
    out, want = OPS[op](max(size // 4, 1), rank, world, step, device)
    torch.cuda.synchronize()
    end_ns = time.monotonic_ns()
    if args.corrupt == step and rank == 0:
        out[out.numel() // 2] += 1
    wrong = int((out != want).sum().item())
    tell(rank=rank, op=op, bytes=size, step=step, begin_ns=start_ns, end_ns=end_ns,
         elements=out.numel(), wrong=wrong)
    return wrong


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", action="append", required=True, metavar="OP:BYTES:COUNT",
                        help="repeatable; steps are counted from 0 over all of them")
    parser.add_argument("--rule", action="append", default=[], metavar="STEP:RULE",
                        help="fault rule for the fabric, installed before that step")
    parser.add_argument("--fabricctl", default="")
    parser.add_argument("--corrupt", type=int, default=-1, metavar="STEP",
                        help="self-test: spoil one element there, which must be noticed")
    parser.add_argument("--timeout", type=int, default=120, help="PyTorch's own, in seconds")
    parser.add_argument("--dump-after", type=int, default=0, metavar="SECONDS",
                        help="write the stacks then, and go on")
    return parser.parse_args(argv)


def main(argv):
    args = parse(argv)
    if args.dump_after:
        faulthandler.dump_traceback_later(args.dump_after, file=sys.stderr)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=timedelta(seconds=args.timeout), device_id=device)
    dist.barrier()
    tell(rank=rank, ready_s=time.monotonic() - IMPORTED_S)
    wrong = step = 0
    for part in args.steps:
        op, size, count = part.split(":")
        for _ in range(int(count)):
            install_rules(args, rank, step)
            wrong += run_step(args, op, int(size), step, rank, world, device)
            step += 1
    dist.barrier()
    dist.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
