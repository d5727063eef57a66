#!/usr/bin/env python3
"""The commands `show` and `verify` as a user calls them: --step, --json, --svg, lists, wrong usage.

  command_test.py TRIREME WITH_LIBTORCH
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TRIREME, WITH_LIBTORCH = sys.argv[1], sys.argv[2] == "ON"


def run(*arguments, typed=""):
    return subprocess.run([TRIREME, *arguments], input=typed, capture_output=True, text=True,
                          check=False, timeout=60)


class Show(unittest.TestCase):
    def test_step_waits_for_enter(self):
        whole = run("show", "all-reduce", "ring", "--ranks", "2", "--step", typed="\n\n")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertEqual(whole.stdout.count("Enter: the next round"), 2)
        self.assertIn("round 2 of 2", whole.stdout)
        cut = run("show", "all-reduce", "ring", "--ranks", "2", "--step", typed="\n")
        self.assertIn("round 1 of 2", cut.stdout)
        self.assertNotIn("round 2 of 2", cut.stdout)

    def test_json_is_all_that_stands_on_stdout(self):
        shown = run("show", "broadcast", "binomial", "--ranks", "5", "--root", "2", "--json")
        events = [json.loads(line) for line in shown.stdout.splitlines()]
        self.assertEqual([event["event"] for event in events],
                         ["show"] + ["round"] * 4 + ["cost"])
        self.assertEqual(events[0]["root"], 2)
        self.assertEqual(events[-1]["faults"], [])
        self.assertEqual(sum(events[-1]["sent_bytes"]), 4 * events[0]["buffer_bytes"])

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            svg, html = pathlib.Path(folder) / "a.svg", pathlib.Path(folder) / "a.html"
            done = run("show", "all-gather", "pairwise", "--svg", str(svg), "--html", str(html))
            self.assertEqual((done.returncode, done.stdout), (0, ""))
            self.assertTrue(svg.read_text().startswith("<svg"))
            self.assertIn("</html>", html.read_text())
        lost = run("show", "all-gather", "pairwise", "--svg", "/nowhere/a.svg")
        self.assertNotEqual(lost.returncode, 0)
        self.assertIn("cannot write /nowhere/a.svg", lost.stderr)

    def test_lists(self):
        everything = run("show").stdout
        for name in ("all-reduce", "ring", "reduce-scatter", "all-to-all", "scatter"):
            self.assertIn(name, everything)
        self.assertNotIn("broadcast", run("show", "all-reduce").stdout)

    def test_wrong_usage_is_2_and_says_what_there_is(self):
        for arguments, words in ((("all-redcue", "ring"), "all-reduce"),
                                 (("all-reduce", "rnig"), "halving_doubling"),
                                 (("all-reduce", "ring", "--ranks", "1"), "2 to 20"),
                                 (("all-reduce", "ring", "--root", "1"), "no root"),
                                 (("all-reduce", "ring", "--link", "fast"), "25us,1GB/s"),
                                 (("all-reduce", "ring", "--bytes", "big"), "1MiB")):
            done = run("show", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)


class Verify(unittest.TestCase):
    def test_one_count_and_a_range(self):
        done = run("verify", "all-reduce", "tree", "--ranks", "3..5", "--seeds", "6")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("all-reduce tree is right on 3 to 5 ranks: 6 simulated runs", done.stdout)
        one = run("verify", "scatter", "--ranks", "4", "--seeds", "2", "--json")
        self.assertEqual(json.loads(one.stdout)["right"][0]["ranks"], 4)

    def test_wrong_usage_is_2(self):
        for arguments in (("all-reduce", "rnig"), ("all-reduce", "ring", "--ranks", "5..2"),
                          ("all-reduce", "ring", "--ranks", "some"), ()):
            self.assertEqual(run("verify", *arguments).returncode, 2, arguments)


class WithoutLibTorch(unittest.TestCase):
    def test_commands_that_need_it_say_so(self):
        done = run("train", "x.toml", "--ranks", "2")
        self.assertEqual(done.returncode, 2)
        if not WITH_LIBTORCH:
            self.assertIn("built without LibTorch", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
