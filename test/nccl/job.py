# SPDX-License-Identifier: Apache-2.0
"""One job of nccl_matrix (test/nccl/matrix): its plan, its processes, what came of it."""

import glob
import os
import re

import launch


def find_matrix(build):
    for path in ("nccl_matrix", os.path.join("test", "nccl", "nccl_matrix")):
        full = os.path.join(build, path)
        if os.path.exists(full):
            return full
    return None


USED_BYTES = 1 << 20  # a rail that moved less has carried no data worth the name


class Job:
    """What a job left: steps (its lines of JSON but the last), job (the last), code (exit status or
    "timeout"), events, fired, moved (the rails' counters), log (NCCL's and the ranks' own)."""

    def __init__(self, folder, code, moved):
        lines = launch.read_lines(os.path.join(folder, "out"))
        self.code = code
        self.steps = [line for line in lines if line.get("kind") != "job"]
        self.job = next((line for line in lines if line.get("kind") == "job"), {})
        self.events = launch.read_events(folder)
        self.fired = launch.read_fired(folder)
        self.moved = moved
        self.log = ""
        for path in sorted(glob.glob(os.path.join(folder, "nccl.*")) +
                           glob.glob(os.path.join(folder, "err*"))):
            with open(path, errors="replace") as stream:
                self.log += stream.read()

    @property
    def ok(self):
        return self.code == 0 and self.job.get("ok", False)

    @property
    def wrong(self):
        return sum(step.get("wrong", 0) for step in self.steps)

    @property
    def elements(self):
        return sum(step.get("elements", 0) for step in self.steps)

    def count_events(self, kind):
        return sum(event.get("event") == kind for event in self.events)

    def network(self):
        for line in self.log.splitlines():
            if "Using network" in line:
                return line.split("Using network")[1].strip()
        return "?"

    def version(self):
        """NCCL's own word for which one it is, as "2.28.9+cuda13.0"."""
        found = re.search(r"NCCL version (\S+)", self.log)
        return found[1] if found else "?"

    def interface(self):
        """By which of the plugin's interfaces NCCL took it, as "v11"; "" where it did not."""
        found = re.search(r"Loaded net plugin Braid \((v\d+)\)", self.log, re.IGNORECASE)
        return found[1] if found else ""

    def rails_used(self, host):
        """How many rails of that host carried data."""
        return sum(sent + received >= USED_BYTES
                   for (at, _), (sent, received) in self.moved.items() if at == host)

    def errors(self):
        return [item["error"] for item in self.job.get("errors", [])]

    def tail(self, count=25):
        """The lines that tell most about a failure."""
        lines = self.log.splitlines()
        own = [line for line in lines if line.startswith("nccl_matrix")]
        warnings = [line for line in lines if "WARN" in line and "path_" not in line]
        return "\n".join(own[:count] + (warnings or lines)[-count:])


def run(context, net, plan, ranks=2, hosts=None, rails=4, rate=0, env=None, limit_s=90,
        step_limit_s=30, prepare=None, mps=True, options=()):
    """Runs a plan (list of lines) and gives the Job. `env` adds to the environment, `options` to
    those of nccl_matrix; `prepare` is called with the folder and the environment before the start.
    `mps` is off where a rank may end in the middle of a kernel, which can take the others' kernels
    along; it is not used where each rank has a GPU."""
    folder = launch.make_folder()
    try:
        full = launch.net_env(context.build, net, folder, rails, rate)
        full.update({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,TUNING",
                     "NCCL_DEBUG_FILE": os.path.join(folder, "nccl.%p")})
        full.update(context.mps_env if mps and ranks > context.gpus else {})
        full.update(env or {})
        with open(os.path.join(folder, "plan"), "w") as stream:
            stream.write("\n".join(plan) + "\n")
        if prepare:
            prepare(folder, full)
        argv = [context.matrix, "--ranks", str(ranks), "--hosts", str(hosts or ranks),
                "--plan", os.path.join(folder, "plan"), "--logs", folder,
                "--step-limit", str(step_limit_s), "--limit", str(limit_s), *options]
        if context.nccl:
            argv += ["--nccl", context.nccl]
        code = launch.run_bounded(argv, full, limit_s + 15, os.path.join(folder, "out"),
                                  os.path.join(folder, "err"))
        return Job(folder, code, launch.read_counters(context.build, folder))
    finally:
        launch.drop_folder(folder, context.keep)
