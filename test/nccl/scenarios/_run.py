# SPDX-License-Identifier: Apache-2.0
"""What the scenarios share: a job of PyTorch ranks as emulated hosts, and the report they give."""

import argparse
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import launch  # noqa: E402
import mps  # noqa: E402

HOSTS = 3
RANKS_PER_HOST = 2
RANKS = HOSTS * RANKS_PER_HOST
RAILS = 3
FAILED_HOST = 0  # node-1
FAILED_RAIL = 1  # its middle one, mlx5_2

# The same reduction order on whatever transport: which rank adds first depends on these alone.
FIXED_ORDER = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_MIN_NCHANNELS": "2",
               "NCCL_MAX_NCHANNELS": "2"}


def parse(doc, argv, more=None):
    """Options of every scenario; `more(parser)` adds its own, with defaults."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--build", required=True, help="folder with the plugin and fabric/")
    parser.add_argument("--json", default="")
    parser.add_argument("--limit", type=float, default=240, help="seconds in all")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the runs")
    if more:
        more(parser)
    args = parser.parse_args(argv)
    args.build = os.path.abspath(args.build)
    args.deadline = time.monotonic() + args.limit - 5
    return args


def gpu_count():
    """Ends the scenario as skipped where it cannot run."""
    try:
        import torch
        if torch.cuda.device_count() > 0:
            return torch.cuda.device_count()
        print("skipped: PyTorch sees no GPU")
    except ImportError:
        print("skipped: no PyTorch here")
    sys.exit(77)


class Job:
    """Ranks of one run under way. Ends with finish()."""

    def __init__(self, args, net, worker, options, **how):
        self.args = args
        self.ranks = how.get("ranks", RANKS)
        self.folder = launch.make_folder()
        self.procs = []
        port = launch.free_port()
        prepare = how.get("prepare")
        if prepare:
            prepare(self.folder)
        for rank in range(self.ranks):
            env = launch.rank_env(args.build, net, rank, self.ranks, port, self.folder,
                                  host=rank // how.get("per_host", RANKS_PER_HOST),
                                  rails=how.get("rails", RAILS), rate=how.get("rate", 0))
            env["CHECK_FABRICCTL"] = os.path.join(args.build, "fabric", "fabricctl")
            env["CHECK_FOLDER"] = self.folder
            env.update(getattr(args, "mps_env", {}))
            env.update(self.host_env(rank, how.get("per_host", RANKS_PER_HOST)))
            env.update(how.get("env", {}))
            with open(self.path("out", rank), "w") as out, open(self.path("err", rank), "w") as err:
                self.procs.append(subprocess.Popen(
                    [sys.executable, os.path.join(HERE, worker)] + [str(o) for o in options],
                    env=env, stdout=out, stderr=err))

    def host_env(self, rank, per_host):
        """With as many GPUs as ranks a host, the ranks of a host talk through its memory, as on
        real ones. Where they would share a GPU, NCCL must take each for a host of its own."""
        if per_host == 1 or self.args.gpus < per_host:
            return {}
        return {"NCCL_HOSTID": f"braid-check-host-{rank // per_host}", "NCCL_P2P_DISABLE": "1"}

    def path(self, kind, rank):
        return os.path.join(self.folder, f"{kind}.{rank}")

    def lines(self, rank):
        return launch.read_lines(self.path("out", rank))

    def wait_line(self, rank, fits, limit_s):
        """The first line of that rank that fits, or None."""
        deadline = min(time.monotonic() + limit_s, self.args.deadline)
        while time.monotonic() < deadline:
            for line in self.lines(rank):
                if fits(line):
                    return line
            if self.procs[rank].poll() is not None:
                break
            time.sleep(0.02)
        return None

    def finish(self, limit_s, grace_s=5):
        """Waits, at most until the scenario's own deadline, and collects everything."""
        left_s = max(1.0, min(limit_s, self.args.deadline - time.monotonic()))
        codes = launch.wait_all(self.procs, left_s, grace_s)
        log = ""
        for rank in range(self.ranks):
            for kind in ("out", "err"):
                with open(self.path(kind, rank), errors="replace") as stream:
                    log += stream.read()
        result = {"codes": codes, "ranks": [self.lines(r) for r in range(self.ranks)], "log": log,
                  "events": launch.read_events(self.folder),
                  "fired": launch.read_fired(self.folder)}
        launch.drop_folder(self.folder, self.args.keep)
        return result


def run(args, net, worker, options, limit_s=120, **how):
    """A whole job. An unclean end shows the end of its log."""
    start = time.monotonic()
    result = Job(args, net, worker, options, **how).finish(limit_s)
    result["seconds"] = time.monotonic() - start
    if any(result["codes"]):
        print(f"exit codes {result['codes']}; the log says:")
        print("\n".join(warnings_of(result)[:40] or result["log"].splitlines()[-15:]), flush=True)
    return result


def warnings_of(result):
    return [line[:400] for line in result["log"].splitlines()
            if "WARN" in line or "NET/Braid " in line or "Error" in line and "frame #" not in line]


def is_clean(result):
    return not any(result["codes"])


def uses(result, name):
    return f"Using network {name}" in result["log"]


def ratio_limit(args):
    """How much longer an all-reduce may take with one of three rails out: 1/(1-1/3) and 5 % more.
    Ranks that share a GPU talk over the network also within a host, which then has fewer pairs of
    rails than rails."""
    return 1.575 if args.gpus >= RANKS_PER_HOST else 1.8


def between(args):
    """For a title: how the two ranks of a host talk."""
    return "memory" if args.gpus >= RANKS_PER_HOST else "the network"


def steps(result, rank=0):
    return [line for line in result["ranks"][rank] if "step" in line]


def wrong(result):
    return sum(line.get("wrong", 0) for lines in result["ranks"] for line in lines)


def count(result, kind):
    return sum(event.get("event") == kind for event in result["events"])


def replayed(result):
    return sum(event.get("bytes_replayed", 0) for event in result["events"]
               if event.get("event") == "path_down")


def received(step, host, rail):
    """Bytes that rail got in that iteration, of a step that has the counters."""
    return step["moved"].get(f"{host}.{rail}", [0, 0])[1]


def cut_hit(found, cut_at):
    """The failing rail carried part of its share in the cut iteration, and nothing later."""
    share = received(found[cut_at - 1], FAILED_HOST, FAILED_RAIL)
    hit = received(found[cut_at], FAILED_HOST, FAILED_RAIL)
    later = max(received(step, FAILED_HOST, FAILED_RAIL) for step in found[cut_at + 1:])
    return 0 < hit < 0.9 * share and later < 0.01 * share


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else 0.0


def report(args, ok, summary, tables, details=None):
    """Writes the result and shows it. The scenario's exit status."""
    result = {"ok": bool(ok), "summary": summary, "tables": tables, "details": details or {}}
    if args.json:
        with open(args.json, "w") as stream:
            json.dump(result, stream, indent=1)
    for table in tables:
        print(f"\n{table['title']}\n")
        print("| " + " | ".join(table["columns"]) + " |")
        print("|" + "---|" * len(table["columns"]))
        for row in table["rows"]:
            print("| " + " | ".join(str(cell) for cell in row) + " |")
    print(f"\n{'ok' if ok else 'FAILED'}: {summary}", flush=True)
    return 0 if ok else 1


def main(doc, body, argv, more=None):
    """Runs a scenario's `body(args)`; ranks share the GPU by MPS unless somebody set that up."""
    args = parse(doc, argv, more)
    args.gpus = gpu_count()
    with mps.Mps("CUDA_MPS_PIPE_DIRECTORY" not in os.environ) as service:
        args.mps_env = service.env
        return body(args)
