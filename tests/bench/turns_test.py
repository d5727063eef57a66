#!/usr/bin/env python3
"""bench/turns.py: what it takes from a program, and that none can hold up the others."""
import argparse
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import turns  # noqa: E402

STEPS = """
import json, sys, time
for step in range(5):
    print(json.dumps({"event": "step", "step": step, "step_seconds": step / 8, "loss": 2.0}), flush=True)
"""
OPTIONS = argparse.Namespace(steps=5, priority=False)


def run(after=""):
    return turns.run(OPTIONS, [sys.executable, "-c", STEPS + after])


class Turns(unittest.TestCase):
    def test_the_first_steps_do_not_count(self):
        self.assertEqual(run(), ([3 / 8, 4 / 8], None, 2.0))

    def test_a_program_that_hangs_after_its_last_step_is_killed_and_counts(self):
        turns.SECONDS_TO_END, whole = 0.1, turns.SECONDS_TO_END
        try:
            self.assertEqual(run("time.sleep(1000)"), ([3 / 8, 4 / 8], None, 2.0))
        finally:
            turns.SECONDS_TO_END = whole

    def test_a_program_that_fails_ends_the_bench_with_what_it_said(self):
        with self.assertRaisesRegex(SystemExit, "ended with 3:\nwhy"):
            run("print('why', file=sys.stderr)\nsys.exit(3)")


if __name__ == "__main__":
    unittest.main()
