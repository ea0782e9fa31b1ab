#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the cases conclude from a run, without a GPU: a run that is right passes, and each way of not
being right is noticed."""

import os
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import builtin
import check
import faults
import healthy
import job
import launch
import spread
import torch_case

MS = 1000000


def fault_step(at_ms, running=True, wrong=0):
    return {"kind": "fault", "label": "cut/0", "coll": "all_reduce", "bytes": 1, "iters": 3,
            "elements": 100, "wrong": wrong, "healthy_us": 10, "hit_us": 20, "after_us": 13,
            "fired": [{"t_ns": at_ms * MS, "seen": 1, "running": running}], "verdict": "ok"}


def event(kind, at_ms, rail=1, comm=1, **more):
    return {"event": kind, "mono_ns": at_ms * MS, "rail": rail, "path": rail, "comm": comm, "pid": 7,
            **more}


def fake_job(steps, events, ok=True, network="Braid", errors=(), rails=4, log=""):
    return types.SimpleNamespace(
        steps=steps, events=events, ok=ok, code=0 if ok else 1, log=log, tail=lambda: "tail",
        job={"seconds": 1, "errors": list(errors)}, wrong=sum(s["wrong"] for s in steps),
        elements=sum(s["elements"] for s in steps), network=lambda: network,
        rails_used=lambda host: rails, version=lambda: "2.0",
        count_events=lambda kind: sum(e["event"] == kind for e in events))


def repaired(at_ms):
    return [event("path_fault", at_ms + 5), event("path_down", at_ms + 7, bytes_replayed=50)]


class FaultKinds(unittest.TestCase):
    def test_right(self):
        done = fake_job([fault_step(100), fault_step(200)], repaired(100) + repaired(200))
        got = faults.kind_result("cut", [done], 2)
        self.assertTrue(got["ok"], got["summary"])
        self.assertEqual((got["running"], got["failed_over"], got["replayed"]), (2, 2, 100))
        self.assertEqual((got["notice_ms"], got["repair_ms"]), ([5.0, 5.0], [2.0, 2.0]))
        self.assertEqual(got["after"], [1.3, 1.3])

    def test_each_red(self):
        both = repaired(100) + repaired(200)
        steps = [fault_step(100), fault_step(200)]
        reds = {
            "wrong": fake_job([fault_step(100), fault_step(200, wrong=1)], both),
            "idle": fake_job([fault_step(100), fault_step(200, running=False)], both),
            "not failed over": fake_job(steps, repaired(100)),
            "missing": fake_job(steps[:1], both),
            "job": fake_job(steps, both, ok=False),
        }
        for name, done in reds.items():
            self.assertFalse(faults.kind_result("cut", [done], 2)["ok"], name)

    def test_slow_keeps_its_rail(self):
        steps = [fault_step(100)]
        self.assertTrue(faults.kind_result("slow", [fake_job(steps, [])], 1)["ok"])
        self.assertFalse(faults.kind_result("slow", [fake_job(steps, repaired(100))], 1)["ok"])

    def test_second_falls_into_the_repair(self):
        inside = [event("path_fault", 105), event("path_fault", 106, rail=2),
                  event("path_down", 120), event("path_down", 121, rail=2)]
        behind = [event("path_fault", 105), event("path_down", 120),
                  event("path_fault", 121, rail=2), event("path_down", 130, rail=2)]
        elsewhere = [event("path_fault", 105), event("path_fault", 106, rail=2, comm=2),
                     event("path_down", 120), event("path_down", 121, rail=2, comm=2)]
        for events, ok in ((inside, True), (behind, False), (elsewhere, False)):
            done = fake_job([fault_step(100)], events)
            self.assertEqual(faults.kind_result("second", [done], 1)["ok"], ok)


class Plans(unittest.TestCase):
    def test_one_way_cuts_hit_something(self):
        for kind, coll, host, few in (("cut_tx", "broadcast", 0, False),
                                      ("cut_tx", "broadcast", 1, True),
                                      ("cut_rx", "broadcast", 0, True),
                                      ("cut_rx", "broadcast", 1, False),
                                      ("cut_tx", "reduce", 0, True), ("cut_tx", "ring", 1, False),
                                      ("cut", "broadcast", 1, False)):
            line = faults.fault_line(kind, "a", coll, host, 1)
            self.assertEqual("ms=" in line, few, line)

    def test_every_operation_at_either_end(self):
        for kind in faults.KINDS:
            plan = faults.death_plan(0, False) + faults.death_plan(1, False) \
                if kind == "nic_death" else faults.kind_plan(kind, False)
            for coll in faults.COLLS:
                for host in (0, 1):
                    self.assertTrue(any(f" coll={coll} " in line and f"label={kind}/{host}" in line
                                        for line in plan), (kind, coll, host))


class Spread(unittest.TestCase):
    def test_every_pair(self):
        seen = set()
        for world in range(len(spread.WORLDS)):
            for line in spread.plan_of(world, False)[1:]:
                keys = dict(word.split("=", 1) for word in line.split()[2:])
                keys["kind"], keys["host"] = keys["label"].split("/")
                seen |= {(a, keys[a], b, keys[b]) for a in keys for b in keys}
        apart = ("all_to_all", "ring")
        values = {"coll": faults.COLLS, "type": faults.TYPES, "kind": spread.KINDS,
                  "red": spread.REDS, "place": ("in", "out"), "reg": ("0", "1")}
        for a, b in (("coll", "type"), ("coll", "kind"), ("type", "kind"), ("red", "type"),
                     ("coll", "red"), ("coll", "place"), ("coll", "reg"), ("type", "reg"),
                     ("kind", "reg"), ("kind", "place"), ("kind", "red"), ("place", "reg")):
            for x in values[a]:
                for y in values[b]:
                    is_none = (y in spread.REDS and x in faults.COLLS and
                               x not in spread.REDUCING and y != "sum") or \
                        (x in apart and y == "in")
                    self.assertNotEqual((a, x, b, y) in seen, is_none, (x, y))

    def test_one_way_cuts_hit_data(self):
        for world, (_, hosts, _, _) in enumerate(spread.WORLDS):
            for line in spread.plan_of(world, False)[1:]:
                keys = dict(word.split("=", 1) for word in line.split()[2:])
                kind, host = keys["label"].split("/")
                self.assertLess(int(host), hosts)
                if kind == "cut_tx":
                    self.assertTrue(faults.sends(keys["coll"], int(host)), line)
                if kind == "cut_rx":
                    self.assertTrue(faults.receives(keys["coll"], int(host)), line)

    def test_floats_are_not_divided_by_six(self):
        for line in spread.plan_of(2, False):
            self.assertFalse("red=avg" in line and "type=int" not in line, line)

    def test_each_world_for_itself(self):
        right = fake_job([fault_step(100)], repaired(100))
        twice = fake_job([fault_step(100), fault_step(200)], repaired(100) + repaired(200))
        idle = fake_job([fault_step(100, running=False)], repaired(100))
        self.assertTrue(spread.spread_result([right] * 4, [1] * 4)["ok"])
        self.assertFalse(spread.spread_result([right, right, idle, twice], [1] * 4)["ok"])
        self.assertFalse(spread.spread_result([right, right, right, idle], [1] * 4)["ok"])


def bench_step(coll, ns_each, wrong=0):
    return {"kind": "bench", "coll": coll, "bytes": 1000, "ns_each": ns_each, "elements": 5,
            "wrong": wrong}


class Builtin(unittest.TestCase):
    def rails(self, **other):
        steps = [bench_step("all_reduce", 100), bench_step("ring", 200)]
        jobs = {(count, net): fake_job(steps, [], network=builtin.NAMES[net], rails=count)
                for count in builtin.COUNTS for net in ("ib", "braid")}
        if other:
            jobs[2, "ib"] = fake_job(**{"steps": steps, "events": [], "network": "IB", "rails": 2,
                                        **other})
        return builtin.rails_result(jobs)

    def test_rails(self):
        got = self.rails()
        self.assertTrue(got["ok"], got["summary"])
        self.assertEqual(got["rows"][0], [1, "built-in IB", "0 of 10", "10.00", "5.00"])
        for name, other in {"a rail idle": {"rails": 1}, "network": {"network": "Socket"},
                            "wrong": {"steps": [bench_step("ring", 1, wrong=1)]},
                            "nothing": {"steps": []}, "job": {"ok": False}}.items():
            self.assertFalse(self.rails(**other)["ok"], name)

    def test_slow(self):
        steps = [bench_step(coll, ns) for ns in (100, 150) for coll in ("all_reduce", "ring")]
        ib = fake_job(steps, [], network="IB")
        got = builtin.slow_result({"ib": ib, "braid": fake_job(steps, [])})
        self.assertTrue(got["ok"], got["summary"])
        self.assertEqual(got["rows"][0][-1], "1.50")
        for braid in (fake_job(steps, repaired(1)), fake_job(steps[:2], []),
                      fake_job(steps, [], ok=False)):
            self.assertFalse(builtin.slow_result({"ib": ib, "braid": braid})["ok"])

    def test_fate(self):
        bad = fake_job([], [], ok=False, errors=({"error": "none", "ms": 0},
                                                 {"error": "remote error", "ms": 500}))
        self.assertEqual(builtin.fate(bad, 0), "remote error after 0.5 s, job ends")
        self.assertEqual(builtin.fate(fake_job([], []), 4.5), "goes on, 4.5 x the time")
        self.assertEqual(builtin.fate(fake_job([], []), 1.1), "goes on")
        wrong = fake_job([fault_step(1, wrong=3)], [])
        self.assertEqual(builtin.fate(wrong, 1.1), "WRONG RESULTS, 3 elements")

    def test_failover_was_there(self):
        lines = ["Made virtual device [4] name=a+b", "Resiliency context was initialized on"]
        self.assertEqual(builtin.failover_complaints(fake_job([], [], log="\n".join(lines))), [])
        for line in lines:
            self.assertEqual(len(builtin.failover_complaints(fake_job([], [], log=line))), 1)

    def test_failover_of_that_library(self):
        for text, has in ((b"x" * 9, False), (b"x NCCL_IB_RESILIENCY_PORT_FAILOVER y", True)):
            with tempfile.NamedTemporaryFile() as stream:
                stream.write(text)
                stream.flush()
                self.assertEqual(launch.has_own_failover(stream.name), has)
                context = types.SimpleNamespace(nccl=stream.name)
                if not has:
                    self.assertTrue(builtin.failover(context)["skipped"])


class Speed(unittest.TestCase):
    """Samples as a plan has them: of Braid 100 ns and more, later runs slower; of IB the double."""

    def jobs(self):
        """{rate: {net: [jobs]}}, as the case runs them; what they were run with is in self.runs."""
        self.runs = []

        def run(context, net, plan, rate, env, **limits):
            self.runs.append((rate, net, env["FABRIC_SPIN_US"]))
            again = sum(at[:2] == (rate, net) for at in self.runs) - 1
            steps = []
            for line in plan[1:]:
                keys = dict(word.split("=") for word in line.split()[2:])
                size = int(keys["bytes"])
                walk = sum(step["bytes"] == size for step in steps) // 2
                for coll in keys["coll"].split(","):
                    steps.append(dict(bench_step(coll, 100 + 10 * walk + 100 * again), bytes=size))
                    steps[-1]["ns_each"] *= 2 if net == "ib" else 1
            return fake_job(steps, [])

        with mock.patch.object(job, "run", run), mock.patch.object(
                healthy, "speed_result", lambda jobs, spin_us: jobs):
            return healthy.speed(None)

    def test_order(self):
        self.jobs()
        self.assertEqual([at[:2] for at in self.runs], [
            (rate, net) for rate in (0, 1000) for net in ("ib", "braid", "braid", "ib")])
        self.assertEqual(len({at[2] for at in self.runs}), 1)

    def test_walks(self):
        sizes = [line.split("bytes=")[1].split()[0] for line in healthy.speed_plan()[1:]]
        self.assertTrue(all(a != b for a, b in zip(sizes, sizes[1:])))
        for (_, size), count in healthy.speed_wanted().items():
            self.assertEqual(count, 5 if size < 16 << 20 else 2)

    def test_medians_over_jobs(self):
        jobs = self.jobs()
        for done in jobs[0]["braid"]:
            for step in done.steps:
                step["ns_each"] += 1000 * (step["coll"] == "ring" and step["ns_each"] >= 210)
        got = healthy.speed_result(jobs, "50")
        self.assertTrue(got["ok"], got["summary"])
        self.assertIn("FABRIC_SPIN_US=50", got["summary"])
        small, big, ring = (got["tables"][0]["rows"][at] for at in (0, 7, 8))
        # 100 110 120 130 140 and 200 210 220 230 240; big ones 100 110 and 200 210
        self.assertEqual(small[:4] + small[6:], ["all_reduce", "8 B", "0.2", "0.3", "2.00", "2.00"])
        self.assertEqual(big[:2] + big[6:], ["all_reduce", "1 GiB", "2.00", "2.00"])
        # 4 of 10 are late: the medians are those of the other 6, (140 + 200) / 2
        self.assertEqual(ring[:2] + ring[6:], ["ring", "8 B", "2.00", "2.00"])
        self.assertEqual(healthy.speed_samples(jobs[0]["ib"])["ring", 8],
                         [200, 220, 240, 260, 280, 400, 420, 440, 460, 480])

    def test_median_and_minimum_differ(self):
        jobs = self.jobs()
        jobs[1000]["ib"][1].steps[0]["ns_each"] = 50
        got = healthy.speed_result(jobs, "0")
        medians, minima = got["tables"][-2:]
        self.assertEqual(len(medians["columns"]), 9)
        self.assertEqual([row[1] for row in medians["rows"]], ["2.00", "2.00", "1.59", "2.00"])
        self.assertEqual([row[1] for row in minima["rows"]], ["2.00", "2.00", "0.50", "2.00"])
        self.assertIn("worst is 1.59 of IB's speed (all_reduce, 8 B)", got["summary"])

    def test_each_red(self):
        for name, spoil in {
                "a sample": lambda done: done.steps.pop(3),
                "all samples": lambda done: done.steps.clear(),
                "wrong": lambda done: setattr(done, "wrong", 1),
                "job": lambda done: setattr(done, "ok", False)}.items():
            jobs = self.jobs()
            spoil(jobs[1000]["ib"][1])
            got = healthy.speed_result(jobs, "0")
            self.assertFalse(got["ok"], name)
            self.assertEqual("missing" in got["summary"], name in ("a sample", "all samples"))
            self.assertEqual(got["tables"][0]["rows"][0][-1], "2.00", name)

    def test_spin(self):
        def spin(cores, told):
            env = {} if told is None else {"FABRIC_SPIN_US": told}
            with mock.patch.object(os, "environ", env), \
                    mock.patch.object(os, "sched_getaffinity", lambda pid: range(cores)):
                return launch.spin_us(ranks=2, rails=4), builtin.spin_env()
        for cores, told, wanted in ((12, None, "50"), (11, None, "0"), (64, "0", "0"),
                                    (2, "7", "7")):
            self.assertEqual(spin(cores, told), (wanted, {"FABRIC_SPIN_US": wanted}))

    def test_who_spins(self):
        seen = []

        def run(context, net, plan, env=None, **more):
            seen.append("FABRIC_SPIN_US" in (env or {}))
            return fake_job([], [])

        with mock.patch.object(job, "run", run):
            for case, jobs, spins in ((healthy.rails, 4, True), (builtin.rails, 6, True),
                                      (builtin.slow, 2, True), (healthy.large, 1, False)):
                seen.clear()
                case(None)
                self.assertEqual(seen, [spins] * jobs, case.__doc__)

    def test_rails(self):
        ns = {"1": 600 * MS, "4": 150 * MS, "ib": 300 * MS}
        jobs = {name: fake_job([bench_step("all_reduce", each)], []) for name, each in ns.items()}
        lost = dict(fault_step(1), healthy_us=160000, after_us=200000)
        jobs["lost"] = fake_job([lost], [])
        got = healthy.rails_result(jobs)
        self.assertTrue(got["ok"], got["summary"])
        # 134.2 MB in 0.6 s of a rail's 250 MB/s
        self.assertEqual(got["shares"], {"1 rail": "0.89", "4 rails": "0.89",
                                         "4 before the loss": "0.84", "3 after it": "0.89"})
        self.assertEqual([row[1] for row in got["rows"]],
                         ["4.00 x", "2.00 x", "0.89", "0.89, 0.89, 0.84, 0.89", "1.250 x"])
        for red in (fake_job([lost], [], ok=False), fake_job([], []),
                    fake_job([dict(lost, wrong=1)], [])):
            self.assertFalse(healthy.rails_result({**jobs, "lost": red})["ok"])


class Torch(unittest.TestCase):
    def braid(self, network="Braid", codes=(0, 0), early_ms=0, ups_ms=3, change=None):
        """A job in which step n lasts from 10 n to 10 n + 9 ms."""
        parts, rules = torch_case.braid_steps()
        steps = [{"op": op, "step": first + i, "wrong": 0, "elements": 5, "rank": rank,
                  "begin_ns": (first + i) * 10 * MS, "end_ns": ((first + i) * 10 + 9) * MS}
                 for first, op, _, count in parts for i in range(count) for rank in (0, 1)]
        fired = [{"t_ns": (at * 10 + (5 if rule.startswith("cut") else 0)) * MS,
                  "action": rule.split()[0], "rail": int(rule.split("rail=")[1][0])}
                 for at, rule in rules]
        cut_ms, heal_ms, again_ms = (f["t_ns"] // MS for f in fired)
        events = [event("path_down", cut_ms + 2, bytes_replayed=7), event("path_up", heal_ms + ups_ms),
                  event("path_down", again_ms + 2, bytes_replayed=7)]
        fired[0]["t_ns"] -= early_ms * MS
        if change:
            change(steps)
        return torch_case.braid_result({"codes": codes, "steps": steps, "fired": fired, "ready_s": 1,
                                        "events": events, "log": f"Using network {network}"})

    def test_braid(self):
        got = self.braid()
        self.assertTrue(got["ok"], got)
        self.assertEqual(got["cut"]["send_recv"]["bytes_replayed"], 7)
        reds = {"network": {"network": "IB"}, "code": {"codes": (0, 1)}, "idle": {"early_ms": 6},
                "not back": {"ups_ms": -1}, "short": {"change": lambda steps: steps.pop(3)},
                "wrong": {"change": lambda steps: steps[3].update(wrong=1)}}
        for name, red in reds.items():
            self.assertFalse(self.braid(**red)["ok"], name)

    def test_builtin(self):
        def judge(codes=(1, "timeout"), steps=(0, 0), fired=1, network="IB"):
            return torch_case.builtin_result({
                "codes": codes, "steps": [{"step": step, "wrong": 0} for step in steps],
                "fired": [1] * fired, "log": f"Using network {network}"})["ok"]
        self.assertTrue(judge())
        for red in ({"codes": (0, 1)}, {"steps": (0,)}, {"fired": 0}, {"network": "Socket"}):
            self.assertFalse(judge(**red), red)

    def test_corrupt(self):
        for codes, wrong, ok in (((1, 0), 1, True), ((0, 0), 0, False), ((1, 1), 2, False)):
            result = {"codes": codes, "steps": [{"wrong": wrong}]}
            self.assertEqual(torch_case.corrupt_result(result)["ok"], ok)

    def test_stacks_come_first(self):
        log = "--- rank 0, err.0\n" + "noise\n" * 99 + "Timeout (0:01:30)!\nFile x\n" + "n\n" * 99
        self.assertIn("File x", torch_case.log_of("job", {"codes": [1], "log": log}))


class Others(unittest.TestCase):
    def test_summary(self):
        step = {"elements": 5, "wrong": 0}
        self.assertTrue(healthy.summary([fake_job([step], [])], "")["ok"])
        self.assertFalse(healthy.summary([fake_job([dict(step, wrong=1)], [])], "")["ok"])
        self.assertFalse(healthy.summary([fake_job([step], [], network="IB")], "")["ok"])
        self.assertFalse(healthy.summary([fake_job([step], [], ok=False)], "")["ok"])
        self.assertFalse(healthy.summary([fake_job([], [])], "")["ok"])

    def test_choices(self):
        log = "NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..0}"
        self.assertEqual(healthy.used_choices(log), {("ring", "ll128")})

    def test_corrupt(self):
        right = [fake_job([{"elements": 5, "wrong": int(i == at)} for i in (0, 1)], [], ok=False)
                 for at in (0, 1)]
        self.assertTrue(healthy.corrupt_result(right, "ab")["ok"])
        blind = fake_job([{"elements": 5, "wrong": 0}] * 2, [])
        both = fake_job([{"elements": 5, "wrong": 1}] * 2, [], ok=False)
        for other in (blind, both):
            self.assertFalse(healthy.corrupt_result([right[0], other], "ab")["ok"])

    def test_what_a_job_left(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "nccl.1"), "w") as stream:
                stream.write("x NCCL version 2.28.9+cuda13.0\nLoaded net plugin Braid (v11)\n")
            done = job.Job(folder, 0, {(0, 0): (9 << 20, 0), (0, 1): (9, 9), (1, 0): (0, 9 << 20)})
        self.assertEqual((done.version(), done.interface()), ("2.28.9+cuda13.0", "v11"))
        self.assertEqual([done.rails_used(host) for host in (0, 1, 2)], [1, 1, 0])

    def test_torn_lines_are_left_out(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as stream:
            stream.write('{"a":1}\nnoise\n{"a":')
            stream.flush()
            self.assertEqual(launch.read_lines(stream.name), [{"a": 1}])

    def test_scenario_facts(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as stream:
            stream.write('"""Does this.\n\nAnd that."""\nLIMIT_S = 7\nraise SystemExit\n')
            stream.flush()
            self.assertEqual(check.scenario_facts(stream.name), ("Does this.", 7))

    def test_quick_cases_exist(self):
        self.assertLessEqual(set(check.QUICK), set(check.all_cases()))


if __name__ == "__main__":
    unittest.main()
