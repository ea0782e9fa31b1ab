# SPDX-License-Identifier: Apache-2.0
"""What one rank of a scenario needs: the process group, data whose sums are exact, fault rules, the
rails' counters."""

import hashlib
import json
import os
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
CTL = [os.environ["CHECK_FABRICCTL"], "--dir", os.environ["FABRIC_DIR"]]


def begin(timeout_s=90):
    device = torch.device("cuda", RANK % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=timedelta(seconds=timeout_s), device_id=device)
    return device


def wait():
    """Until the GPU has done what it was given, by asking: a thread that waits inside the driver
    keeps the fabric's threads from copying GPU memory, which NCCL's kernel waits for."""
    event = torch.cuda.Event()
    event.record()
    while not event.query():
        time.sleep(0.0001)


def barrier():
    dist.all_reduce(torch.ones(1, device="cuda"))
    wait()


def end():
    barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()


def tell(**line):
    print(json.dumps({"rank": RANK, **line}), flush=True)


def pattern(count, rank, step, device):
    """Whole numbers 0..1023 as float: every element depends on its index, rank and step, and the
    sum over ranks is exact in any order."""
    index = torch.arange(count, dtype=torch.int32, device=device)
    mixed = index * 747796405 + (rank + 1) * 277803737 + (step + 1) * 1013904223
    return ((mixed >> 9) & 1023).float()


def wanted(count, step, device):
    total = pattern(count, 0, step, device)
    for rank in range(1, WORLD):
        total += pattern(count, rank, step, device)
    return total


def wrong_elements(out, step):
    return int((out != wanted(out.numel(), step, out.device)).sum().item())


def install(*rules):
    subprocess.run(CTL + ["fault", *rules], check=True, timeout=20, stdout=sys.stderr)


def rules_at(rules, step):
    """Those of "STEP:RULE" that belong to this step; rank 0 installs them before any rank begins
    it."""
    mine = [rule.split(":", 1)[1] for rule in rules if int(rule.split(":", 1)[0]) == step]
    if mine:
        if RANK == 0:
            install(*mine)
        barrier()
    return mine


def counters():
    """{"HOST.RAIL": [tx_bytes, rx_bytes]} of the whole fabric."""
    text = subprocess.run(CTL + ["counters"], check=True, timeout=20, capture_output=True,
                          text=True).stdout
    found = {}
    for line in text.splitlines()[1:]:
        host, rail, tx, rx = line.split()[:4]
        found[f"{host}.{rail}"] = [int(tx), int(rx)]
    return found


def difference(after, before):
    return {key: [a - b for a, b in zip(after[key], before.get(key, [0, 0]))] for key in after}


def digest(tensors):
    """SHA-256 over the bytes of all of them."""
    flat = torch.cat([t.detach().reshape(-1).float() for t in tensors]).cpu()
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()


def timed(body):
    wait()
    start = time.monotonic()
    body()
    wait()
    return time.monotonic() - start
