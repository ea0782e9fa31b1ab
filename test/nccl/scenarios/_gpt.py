#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank that trains a small GPT with DistributedDataParallel on made-up text,
deterministically, and prints a SHA-256 of the reduced gradients and of the parameters at each
step."""

import argparse
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import _rank

VOCAB, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 512, 256, 4, 4, 128, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        score = (q @ k.transpose(-2, -1)) / (WIDTH // HEADS) ** 0.5
        mixed = score.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        place = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.place(place))))


def text(step, device):
    """Numbers that follow a rule a model can learn, other ones for each rank and step."""
    gen = torch.Generator().manual_seed(1000003 * step + _rank.RANK)
    start = torch.randint(VOCAB, (BATCH, 1), generator=gen)
    stride = torch.randint(1, 8, (BATCH, 1), generator=gen)
    return ((start + stride * torch.arange(LENGTH + 1)) % VOCAB).to(device)


def wait_for(kind, limit_s=8):
    """Until the plugin has reported such an event somewhere; rank 0 asks for all."""
    folder = os.environ["CHECK_FOLDER"]
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        for name in os.listdir(folder):
            if name.startswith("events."):
                with open(os.path.join(folder, name), errors="replace") as stream:
                    if f'"event":"{kind}"' in stream.read().replace(": ", ":"):
                        return True
        time.sleep(0.1)
    return False


def train(args, device):
    torch.manual_seed(7)
    model = DistributedDataParallel(Gpt().to(device), device_ids=[device], bucket_cap_mb=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    hashing = _rank.RANK in (0, _rank.WORLD - 1)
    for step in range(args.steps):
        if 0 < step == args.wait_up and _rank.RANK == 0:
            print(f"a rail is back: {wait_for('path_up')}", file=sys.stderr)
        _rank.rules_at(args.rule, step)
        start = time.monotonic()
        tokens = text(step, device)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        _rank.wait()
        took = time.monotonic() - start
        grads = _rank.digest([p.grad for p in model.parameters()]) if hashing else ""
        optimizer.step()
        params = _rank.digest(list(model.parameters())) if hashing else ""
        if hashing:
            _rank.tell(step=step, seconds=took, loss=loss.item(), grads=grads, params=params)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--wait-up", type=int, default=0,
                        help="before the cut of that step a rail must have come back")
    parser.add_argument("--rule", action="append", default=[], metavar="STEP:RULE")
    args = parser.parse_args(argv)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    device = _rank.begin()
    train(args, device)
    _rank.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
