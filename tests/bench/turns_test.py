#!/usr/bin/env python3
"""bench/turns.py: what it takes from a program, and that none can hold up the others."""
import argparse
import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import turns  # noqa: E402

STEPS = """
import json, sys, time
for step in range(5):
    print(json.dumps({"event": "step", "step": step, "step_seconds": step / 8, "loss": 2.0}), flush=True)
"""
STARTER = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"])
with open(sys.argv[1] + ".part", "w") as file:
    file.write(str(child.pid))
os.rename(sys.argv[1] + ".part", sys.argv[1])
print("{nonsense}", flush=True)
time.sleep(1000)
"""
BENCH = """
import os, sys, turns
read = turns.lines_of

def lines_of(program, limit):
    with open(sys.argv[1] + ".part", "w") as file:
        file.write(str(program.pid))
    os.rename(sys.argv[1] + ".part", sys.argv[1])
    return read(program, limit)

turns.lines_of = lines_of
turns.events_of(turns.parser("About.").parse_args([]), ["sleep", "1000"])
"""
OPTIONS = argparse.Namespace(steps=5, priority=False)


def ended(process):
    """Whether a process has ended, also if nobody has waited for it. It has some time to do so."""
    for _ in range(6000):
        try:
            if pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


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

    def test_steps_are_counted_whatever_their_first_number_is(self):
        """`trireme train` begins with 1. Until its last step it has the time of a step."""
        slow = STEPS.replace('"step": step,', '"step": step + 1,').replace("print", "time.sleep(step // 4); print")
        with mock.patch.object(turns, "SECONDS_TO_END", 0.1):
            self.assertEqual(turns.run(OPTIONS, [sys.executable, "-c", slow]), ([3 / 8, 4 / 8], None, 2.0))

    def test_silence_has_a_limit(self):
        reader, writer = os.pipe()
        with os.fdopen(reader) as stdout, os.fdopen(writer, "w"):
            with self.assertRaises(TimeoutError):
                next(turns.lines_of(argparse.Namespace(stdout=stdout), lambda: 0.01))

    def test_a_program_that_is_silent_or_prints_nonsense_is_killed_with_what_it_has_started(self):
        def silent(program, limit):
            while not path.exists():
                time.sleep(0.01)
            raise TimeoutError

        for lines_of, error in ((silent, SystemExit), (turns.lines_of, ValueError)):
            with self.subTest(error), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "child")
                command = [sys.executable, "-c", STARTER, path]
                with mock.patch.object(turns, "lines_of", lines_of), self.assertRaises(error):
                    turns.events_of(OPTIONS, command)
                self.assertTrue(ended(int(path.read_text())))

    def test_a_bench_that_is_asked_to_end_ends_its_program(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program")
            with subprocess.Popen([sys.executable, "-c", BENCH, path], cwd=turns.HERE) as process:
                while not path.exists() and process.poll() is None:
                    time.sleep(0.01)
                process.terminate()
            self.assertEqual(process.returncode, 128 + signal.SIGTERM)
            self.assertTrue(ended(int(path.read_text())))

    def test_a_program_that_ends_early_is_no_measure(self):
        with self.assertRaisesRegex(SystemExit, "ended after 5 of 6 steps"):
            turns.run(argparse.Namespace(steps=6, priority=False), [sys.executable, "-c", STEPS])

    def test_lines_behind_the_number_of_a_rank_are_read(self):
        words = "print('[ps 0] {\"a\": 1}'); print('Hello {}'); print('{\"b\": {}}')"
        start = time.monotonic()
        first, second = turns.events_of(OPTIONS, [sys.executable, "-c", words])
        self.assertTrue(start < first.pop("at") <= second.pop("at") <= time.monotonic())
        self.assertEqual((first, second), ({"a": 1}, {"b": {}}))

    def test_the_folder_of_a_run_leaves_with_it(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "run")
            command = [sys.executable, "-c", f"import os\nos.mkdir({str(out)!r})\n" + STEPS, "--out", str(out)]
            with contextlib.redirect_stderr(io.StringIO()):
                turned = list(turns.in_turns(argparse.Namespace(steps=5, priority=False, rounds=2), lambda number: {"a": command}))
            self.assertEqual([one[1] for one in turned], [[3 / 8, 4 / 8]] * 2)
            self.assertFalse(out.exists())

    def test_what_cannot_be_measured_is_refused_before_it_begins(self):
        for words, said in ((["--steps", "3"], "the first 3 steps do not count"), (["--rounds", "0"], "less than 1"),
                            (["--json", "/nowhere/x.json"], "the folder of /nowhere/x.json does not exist")):
            with self.subTest(words), contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertRaises(SystemExit, turns.parser("About.").parse_args, words)
                self.assertIn(said, errors.getvalue())

    def test_a_python_is_found_by_its_path_or_its_name(self):
        self.assertTrue(turns.has_module(sys.executable, "json"))
        self.assertFalse(turns.has_module(sys.executable, "no_such_module"))
        self.assertFalse(turns.has_module("/nowhere/python", "json"))
        with mock.patch.dict(os.environ, PATH=str(pathlib.Path(sys.executable).parent)):
            self.assertTrue(turns.has_module(pathlib.Path(sys.executable).name, "json"))
        with self.assertRaisesRegex(SystemExit, "--python names a Python with PyTorch"):
            turns.need_torch("/nowhere/python")

    def test_a_program_that_fails_ends_the_bench_with_what_it_said(self):
        with self.assertRaisesRegex(SystemExit, "ended with 3:\nwhy"):
            run("print('why', file=sys.stderr)\nsys.exit(3)")


if __name__ == "__main__":
    unittest.main()
