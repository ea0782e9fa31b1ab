#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank that runs the five collectives of torch_rank.py over a list of sizes, element-checked there."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import torch_rank  # noqa: E402

if __name__ == "__main__":
    sys.exit(torch_rank.main(sys.argv[1:] + ["--fabricctl", os.environ["BRAID_FABRICCTL"]]))
