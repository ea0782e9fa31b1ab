#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the cases conclude from a run, without a GPU: a run that is right passes, and each way of not
being right is noticed."""

import os
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import check
import faults
import healthy
import launch

MS = 1000000


def fault_step(at_ms, running=True, wrong=0):
    return {"kind": "fault", "label": "cut/0", "coll": "all_reduce", "bytes": 1, "iters": 3,
            "elements": 100, "wrong": wrong, "healthy_us": 10, "hit_us": 20, "after_us": 13,
            "fired": [{"t_ns": at_ms * MS, "seen": 1, "running": running}], "verdict": "ok"}


def event(kind, at_ms, rail=1, comm=1, **more):
    return {"event": kind, "mono_ns": at_ms * MS, "rail": rail, "path": rail, "comm": comm, "pid": 7,
            **more}


def fake_job(steps, events, ok=True, network="Braid", errors=()):
    return types.SimpleNamespace(
        steps=steps, events=events, ok=ok, code=0 if ok else 1, log="", tail=lambda: "tail",
        job={"seconds": 1, "errors": list(errors)}, wrong=sum(s["wrong"] for s in steps),
        elements=sum(s["elements"] for s in steps), network=lambda: network)


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

    def test_fate(self):
        bad = fake_job([], [], ok=False, errors=({"error": "none", "ms": 0},
                                                 {"error": "remote error", "ms": 500}))
        self.assertEqual(faults.fate(bad, 0), "remote error after 0.5 s, job ends")
        self.assertEqual(faults.fate(fake_job([], []), 4.5), "goes on, 4.5 x the time")
        self.assertEqual(faults.fate(fake_job([], []), 1.1), "goes on")

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
