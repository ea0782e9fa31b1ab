#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified NCCL on GPUs over the software fabric, as cases that each check every element. Run it
through scripts/nccl-check."""

import argparse
import ast
import concurrent.futures
import glob
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import builtin
import faults
import gpu_direct
import healthy
import job
import launch
import mps
import spread
import torch_case

SKIPPED = 77
ALONE = {"speed": healthy.speed, "rails": healthy.rails, "builtin-rails": builtin.rails,
         "builtin-slow": builtin.slow}  # they measure: nothing beside them
OURS = {
    "matrix": healthy.matrix, "protocols": healthy.protocols, "large": healthy.large,
    "communicators": healthy.communicators, "reload": healthy.reload, "ranks4": healthy.ranks4,
    "ranks6": healthy.ranks6, "corrupt": healthy.corrupt, "pause": faults.pause, "kill": faults.kill, "abort": faults.abort,
    **{f"fault-{kind}": faults.fault_case(kind) for kind in faults.KINDS},
    "fault-communicators": faults.communicators, "fault-spread": spread.run,
    "gpu-direct": gpu_direct.run, "baseline": builtin.baseline,
    "builtin-failover": builtin.failover, "torch": torch_case.run,
}
QUICK = ("matrix", "protocols", "communicators", "kill", "pause", "fault-cut", "fault-port_down",
         "baseline")


def has_torch():
    return importlib.util.find_spec("torch") is not None


def scenario_paths():
    """Scenarios bring their own programs: test/nccl/scenarios/NAME.py, but _*.py are helpers."""
    paths = sorted(glob.glob(os.path.join(launch.HERE, "scenarios", "[!_]*.py")))
    return {os.path.splitext(os.path.basename(path))[0]: path for path in paths}


def scenario_facts(path):
    """First line of the docstring and LIMIT_S of a scenario, without running it."""
    with open(path) as stream:
        tree = ast.parse(stream.read())
    limit_s = 240
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and \
                [getattr(t, "id", "") for t in node.targets] == ["LIMIT_S"]:
            limit_s = int(node.value.value)
    return (ast.get_docstring(tree) or "").split("\n")[0], limit_s


def scenario_case(name, path):
    limit_s = scenario_facts(path)[1]

    def run(context):
        with tempfile.TemporaryDirectory() as folder:
            out, result = os.path.join(folder, "out"), os.path.join(folder, "result.json")
            env = dict(os.environ, PYTHONPATH=launch.HERE, PYTHONUNBUFFERED="1",
                       **getattr(context, "mps_env", {}))
            code = launch.run_bounded([sys.executable, path, "--build", context.build, "--json",
                                       result, "--limit", str(limit_s)], env, limit_s + 20, out,
                                      out + ".err")
            text = ""
            for part in (out, out + ".err"):
                with open(part, errors="replace") as stream:
                    text += stream.read()
            for line in text.splitlines():
                if line.startswith("skipped:") and code == SKIPPED:
                    return {"ok": True, "skipped": True, "summary": line}
            try:
                with open(result) as stream:
                    got = json.load(stream)
            except (OSError, json.JSONDecodeError):
                got = {"ok": False, "summary": f"no result, exit status {code}"}
            got["ok"] = bool(got.get("ok")) and code == 0
            if not got["ok"]:
                got["log"] = "\n".join(text.splitlines()[-40:])
            return got
    return run


def all_cases():
    cases = {**ALONE, **OURS}
    for name, path in scenario_paths().items():
        cases[name] = scenario_case(name, path)
    return cases


def describe(name, case):
    paths = scenario_paths()
    words = scenario_facts(paths[name])[0] if name in paths else (case.__doc__ or "")
    return f"  {name:18} {words}"


class Runner:
    """Runs cases, says how they go, and keeps what came of them."""

    def __init__(self, context):
        self.context = context
        self.results = {}
        self.start = time.monotonic()
        self.lock = threading.Lock()

    def run_one(self, name, case):
        start = time.monotonic()
        with self.lock:
            print(f"{name}: begins", flush=True)
        if name in ("torch", *scenario_paths()) and not has_torch():
            result = {"ok": True, "skipped": True, "summary": "skipped: no PyTorch here"}
        else:
            try:
                result = case(self.context)
            except (OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
                result = {"ok": False, "summary": f"{type(error).__name__}: {error}"}
        result["seconds"] = round(time.monotonic() - start, 1)
        with self.lock:
            self.results[name] = result
            self.write()
            word = "skipped" if result.get("skipped") else "ok" if result["ok"] else "FAILED"
            print(f"{name}: {word}, {result['seconds']} s: {result['summary']}", flush=True)
            if result.get("log"):
                print("\n".join(f"    {line}" for line in result["log"].splitlines()), flush=True)

    def run_all(self, cases, width):
        alone = [name for name in cases if name in ALONE or name in scenario_paths()]
        others = [name for name in cases if name not in alone]
        with concurrent.futures.ThreadPoolExecutor(width) as pool:
            for future in [pool.submit(self.run_one, name, cases[name]) for name in others]:
                future.result()
        for name in alone:
            self.run_one(name, cases[name])

    def write(self):
        """What there is so far: a run that is cut short leaves it."""
        if not self.context.json:
            return
        ok = all(result["ok"] for result in self.results.values())
        with open(self.context.json + ".new", "w") as stream:
            json.dump({"ok": ok, "seconds": round(time.monotonic() - self.start, 1),
                       "cases": self.results}, stream, indent=1)
        os.replace(self.context.json + ".new", self.context.json)


def print_table(table):
    print(f"\n{table['title']}\n")
    print("| " + " | ".join(table["columns"]) + " |")
    print("|" + "---|" * len(table["columns"]))
    for row in table["rows"]:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def print_results(results, order):
    done = {name: results[name] for name in order if name in results}
    rows = [[name, "skipped" if r.get("skipped") else "ok" if r["ok"] else "FAILED",
             f"{r['seconds']:.0f} s", r["summary"]] for name, r in done.items()]
    print_table({"title": "All cases", "columns": ["case", "", "took", "what"], "rows": rows})
    tables = [table for r in done.values() for table in r.get("tables", [])]
    table = faults.fault_table(done)
    for table in ([table] if table else []) + tables:
        print_table(table)


def gpu_count():
    return len(glob.glob("/dev/nvidia[0-9]*"))


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="", help="folder with the plugin, fabric/, nccl_matrix")
    parser.add_argument("--quick", action="store_true", help="the core, a few minutes")
    parser.add_argument("--full", action="store_true", help="all cases and scenarios")
    parser.add_argument("--case", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--list", action="store_true", help="names of the cases")
    parser.add_argument("--nccl", default="", help="libnccl.so.2 for all but what runs on PyTorch, "
                                                   "which brings its own")
    parser.add_argument("--jobs", type=int, default=3, help="cases run at a time, where none "
                                                            "measures")
    parser.add_argument("--json", default="", help="write the results to this file")
    parser.add_argument("--no-mps", action="store_true", help="ranks that share a GPU take turns")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the runs")
    return parser.parse_args(argv)


def choose(args, cases):
    unknown = [name for name in args.case if name not in cases]
    if unknown:
        sys.exit(f"nccl-check: no case '{unknown[0]}'; --list shows them")
    if args.case:
        return {name: cases[name] for name in args.case}
    if args.quick:
        return {name: cases[name] for name in QUICK}
    if args.full:
        return cases
    return {name: case for name, case in cases.items() if name not in scenario_paths()}


def main(argv):
    args = parse(argv)
    cases = all_cases()
    if args.list:
        print("\n".join(describe(name, case) for name, case in cases.items()))
        return 0
    chosen = choose(args, cases)
    args.build = os.path.abspath(args.build)
    args.matrix, args.nccl = job.find_matrix(args.build), args.nccl or launch.find_nccl()
    args.gpus = gpu_count()
    if args.matrix is None:
        print(f"skipped: no nccl_matrix in {args.build}: it is built where nvcc is")
        return SKIPPED
    runner = Runner(args)
    with mps.Mps(not args.no_mps) as service:
        args.mps_env = service.env
        print(f"{args.gpus} GPU(s); ranks that share one run " +
              ("at the same time (MPS)" if service.env else "in turns"), flush=True)
        runner.run_all(chosen, max(1, args.jobs))
    print_results(runner.results, chosen)
    ok = all(result["ok"] for result in runner.results.values())
    print(f"\nverdict: {'every case right' if ok else 'FAILED'}, "
          f"{time.monotonic() - runner.start:.0f} s")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
