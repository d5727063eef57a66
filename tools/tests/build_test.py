#!/usr/bin/env python3
"""Tests tools/build.py: what a build says while it runs, and what it passes on."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import build  # noqa: E402


def said(steps, terminal, total=200, seconds=1.0):
    """What a build says that finishes a step of `total` every `seconds`."""
    now, out = [0.0], []
    progress = build.Progress(out.append, terminal, lambda: now[0])
    for done in range(1, steps + 1):
        now[0] += seconds
        progress.step(done, total)
    progress.clear()
    return out


class Progress(unittest.TestCase):
    def test_a_short_build_says_nothing(self):
        self.assertEqual(said(9, terminal=False), [])
        self.assertEqual(said(9, terminal=True), [])

    def test_without_a_terminal_a_line_every_tenth(self):
        lines = said(200, terminal=False)
        self.assertEqual(lines[0], "built 20 of 200, about 3 min left\n")
        self.assertEqual(lines[-2], "built 180 of 200, about 20 s left\n")
        self.assertEqual(len(lines), 10)

    def test_a_terminal_has_one_line_that_ends_empty(self):
        lines = said(200, terminal=True)
        self.assertEqual(lines[0], "\rbuilt 10 of 200, about 3 min left\x1b[K")
        self.assertEqual(len(lines), 192)
        self.assertEqual(lines[-1], "\r\x1b[K")


class Compilers(unittest.TestCase):
    def test_each_has_a_core_and_two_gibibytes(self):
        self.assertEqual(build.compilers(16, "MemTotal: 9 kB\nMemAvailable:    8388608 kB\n"), 4)
        self.assertEqual(build.compilers(2, "MemAvailable:    8388608 kB\n"), 2)
        self.assertEqual(build.compilers(16, "MemAvailable:    8 kB\n"), 1)
        self.assertEqual(build.compilers(16, "MemTotal: 9 kB\n"), 16)

    def test_a_container_may_have_less_memory_than_the_machine(self):
        self.assertEqual(build.compilers(16, "MemAvailable:    80000000 kB\n", "6442450944\n"), 3)
        self.assertEqual(build.compilers(16, "MemAvailable:    80000000 kB\n", "max\n"), 16)


class Clean(unittest.TestCase):
    def test_what_was_measured_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("build", "build-core", "build-gpu-pass", "runs"):
                pathlib.Path(folder, name).mkdir()
            subprocess.run(["make", "-f", build.ROOT / "Makefile", "clean"], cwd=folder, check=True)
            self.assertEqual(sorted(os.listdir(folder)), ["build-gpu-pass", "runs"])


class Follow(unittest.TestCase):
    def test_errors_are_passed_on_and_steps_are_not(self):
        out = []
        lines = ["ninja: Entering directory `build'\n", "ninja 1/2 Building a.o\n", "FAILED: b.o\n",
                 "b.cc:1: error: no\n"]
        build.follow(lines, build.Progress(out.append, False), out.append)
        self.assertEqual(out, lines[2:])


if __name__ == "__main__":
    unittest.main()
