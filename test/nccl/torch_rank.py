#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of scripts/nccl-check: unmodified NCCL through PyTorch, every element checked.

Values are small integers hashed from (index, rank, step), so sums are exact in any order. A result
is compared with what every rank would have sent, on the GPU, element by element. One JSON line per
step goes to standard output.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv")


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
    start = time.monotonic()
    out, want = globals()[op](max(size // 4, 1), rank, world, step, device)
    torch.cuda.synchronize()
    took = time.monotonic() - start
    if args.corrupt and step == 0 and rank == 0:
        out[out.numel() // 2] += 1
    wrong = int((out != want).sum().item())
    print(json.dumps({"rank": rank, "op": op, "bytes": size, "step": step, "seconds": took,
                      "elements": out.numel(), "wrong": wrong}), flush=True)
    return wrong


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--sizes", required=True, help="bytes, comma separated")
    parser.add_argument("--repeat", type=int, default=1, help="steps per operation and size")
    parser.add_argument("--rule", action="append", default=[], metavar="STEP:RULE",
                        help="fault rule for the fabric, installed before that step")
    parser.add_argument("--fabricctl", default="")
    parser.add_argument("--corrupt", action="store_true", help="self-test: must be noticed")
    parser.add_argument("--timeout", type=int, default=120)
    return parser.parse_args(argv)


def main(argv):
    args = parse(argv)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=timedelta(seconds=args.timeout), device_id=device)
    wrong = step = 0
    for op in args.ops.split(","):
        for size in (int(text) for text in args.sizes.split(",")):
            for _ in range(args.repeat):
                install_rules(args, rank, step)
                wrong += run_step(args, op, size, step, rank, world, device)
                step += 1
    dist.barrier()
    dist.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
