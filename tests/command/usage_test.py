#!/usr/bin/env python3
"""Command lines of the real program: names of options, and refusals of commands with LibTorch. The other
refusals are checked in one process (trireme/cli/program_test.cc).

  usage_test.py TRIREME WITH_LIBTORCH
"""
import pathlib
import subprocess
import sys
import unittest

TRIREME, WITH_LIBTORCH = sys.argv[1], sys.argv[2] == "ON"
CONFIG = pathlib.Path(__file__).parents[2] / "configs" / "gpt-nano.toml"


def run(*arguments):
    return subprocess.run([TRIREME, *arguments], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=60)


class Usage(unittest.TestCase):
    def refused(self, *arguments):
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), (arguments, done.stderr))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("error: "), done.stderr)
        return done.stderr

    def test_the_nearest_command_is_named(self):
        self.assertIn("did you mean launch? ", self.refused("lanch", "-n", "2", "--", "true"))
        if WITH_LIBTORCH:
            self.assertIn("did you mean train?", self.refused("tarin", "x.toml", "--ranks", "2"))

    def test_a_command_that_is_not_there_is_known(self):
        self.assertIn("tokenize is not in this version", self.refused("tokenize", "a", "--to", "b"))
        if not WITH_LIBTORCH:
            for words in (("train", "x.toml"), ("show", "zero3", "--ranks", "2")):
                self.assertIn("was built without LibTorch", self.refused(*words))

    def test_ranks_have_the_names_of_other_launchers(self):
        for option in ("-n", "-np", "--np", "--ranks"):
            done = run("launch", option, "2", "--", "echo", "-np")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sorted(done.stdout.split("\n")), ["", "[0] -np", "[1] -np"], option)
        for option in ("-n", "-np", "--ranks"):
            done = run("bench", "comm", option, "3", "--transport", "sim", "--sizes", "8B")
            self.assertIn("3 ranks", done.stdout, done.stderr)
        if WITH_LIBTORCH:
            for option in ("-n", "-np", "--ranks"):
                done = run("plan", str(CONFIG), option, "2")
                self.assertIn("Plan for gpt-nano on 2 ranks", done.stdout, done.stderr)

    def test_numbers_have_ranges(self):
        if WITH_LIBTORCH:
            for option, value in (("--temperature", "-1"), ("--temperature", "nan"),
                                  ("--bytes", "-5"), ("--top-k", "-1")):
                self.assertIn("is out of range", self.refused("generate", "nowhere", option, value))
            self.assertIn("at least 1", self.refused("eval", "nowhere", "--samples", "0"))


unittest.main(argv=sys.argv[:1])
