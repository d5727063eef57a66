#!/usr/bin/env python3
"""Wrong command lines: one sentence, what was perhaps meant, exit code 2, and nothing started.

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
        self.assertIn("trireme has no command lanch; did you mean launch? ",
                      self.refused("lanch", "-n", "2", "--", "true"))
        if WITH_LIBTORCH:
            self.assertIn("did you mean train?", self.refused("tarin", "x.toml", "--ranks", "2"))
        self.assertIn("bench has no command scael; did you mean scale?", self.refused("bench", "scael"))
        strange = self.refused("xyzzy")
        self.assertIn("no command xyzzy", strange)
        self.assertNotIn("did you mean", strange)
        self.assertIn("`trireme --help`", strange)

    def test_the_nearest_option_is_named(self):
        self.assertIn("trireme verify has no option --seed; did you mean --seeds?",
                      self.refused("verify", "all-reduce", "--seed", "3"))
        self.assertIn("did you mean --algorithm?",
                      self.refused("bench", "comm", "--algoritm=ring"))
        self.assertIn("has no option --frobnicate. ", self.refused("compare", "--frobnicate"))
        self.assertIn("verify does not take more",
                      self.refused("verify", "all-reduce", "ring", "more"))

    def test_alone_it_says_what_it_has(self):
        done = run()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        for words in ("trireme show ", "trireme launch ", "Start N ranks", "trireme COMMAND --help",
                      "Start here:"):
            self.assertIn(words, done.stderr)
        self.assertLess(done.stderr.count("\n"), 30)
        below = run("bench")
        self.assertEqual(below.returncode, 2)
        self.assertIn("trireme bench scale", below.stderr)

    def test_what_is_to_come_is_known(self):
        for name in ("convert", "tokenize"):
            for arguments in ((name,), (name, "--help"), (name, "a", "--to", "b")):
                self.assertIn(f"{name} is not in this version", self.refused(*arguments))
        self.assertNotIn("convert", run("--help").stdout)

    def test_help_is_a_word_too(self):
        self.assertEqual(run("help").stdout, run("--help").stdout)
        self.assertEqual(run("help", "bench", "comm").stdout, run("bench", "comm", "--help").stdout)

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
        self.assertIn("--ranks: 0 is out of range: it must be from 1 to 65,536",
                      self.refused("launch", "-n", "0", "--", "true"))

    def test_a_program_with_options_of_its_own_needs_dashes(self):
        self.assertIn("Write -- before the program and its own options: ",
                      self.refused("launch", "-n", "2", "b/mnist", "--foo"))
        self.assertIn(" launch -n 2 -- b/mnist --foo`.",
                      self.refused("launch", "-n", "2", "b/mnist", "--foo", "3"))

    def test_numbers_have_ranges(self):
        for arguments, words in (
                (("verify", "all-reduce", "--seeds", "-1"), "--seeds: -1 is out of range"),
                (("verify", "all-reduce", "--hosts", "0"), "at least 1"),
                (("show", "all-reduce", "ring", "--root", "-1"), "at least 0"),
                (("show", "gossip", "ring", "--rounds", "-1"), "at least 0"),
                (("bench", "comm", "--ranks", "5000"), "from 1 to 4,096"),
                (("bench", "comm", "--seconds", "nan"), "from 1e-06 to 3,600"),
                (("launch", "-n", "2", "--only-rank", "-3", "--", "true"), "at least 0"),
                (("launch", "-n", "2", "--bind", "cor", "--", "true"), "did you mean core?")):
            self.assertIn(words, self.refused(*arguments))
        if WITH_LIBTORCH:
            for option, value in (("--temperature", "-1"), ("--temperature", "nan"),
                                  ("--bytes", "-5"), ("--top-k", "-1")):
                self.assertIn("is out of range", self.refused("generate", "nowhere", option, value))
            self.assertIn("at least 1", self.refused("eval", "nowhere", "--samples", "0"))


unittest.main(argv=sys.argv[:1])
