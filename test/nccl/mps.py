# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Multi-Process Service for the time of a check, in a folder of its own: kernels of several
ranks run on one GPU at once with it; without it they take turns of some milliseconds."""

import os
import shutil
import subprocess
import tempfile

TOOL = "nvidia-cuda-mps-control"


def find_tool():
    return shutil.which(TOOL) or shutil.which(TOOL, path="/usr/local/nvidia/bin:/usr/bin")


class Mps:
    """Use as `with Mps(wanted) as mps`; mps.env is what processes that use it need, empty without."""

    def __init__(self, wanted):
        self.tool = find_tool() if wanted else None
        self.folder = None
        self.env = {}

    def __enter__(self):
        if self.tool is None:
            return self
        self.folder = tempfile.mkdtemp(prefix="braid-mps-")
        env = {"CUDA_MPS_PIPE_DIRECTORY": self.folder, "CUDA_MPS_LOG_DIRECTORY": self.folder}
        got = subprocess.run([self.tool, "-d"], env={**os.environ, **env}, timeout=20,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if got.returncode == 0:
            self.env = env
        return self

    def __exit__(self, *_):
        if self.env:
            try:
                subprocess.run([self.tool], input="quit -t 5\n", text=True, timeout=20, check=False,
                               env={**os.environ, **self.env}, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
            except subprocess.TimeoutExpired:
                print(f"{TOOL} did not answer: a daemon may be left over, folder {self.folder}")
                return
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
