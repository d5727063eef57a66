#!/usr/bin/env python3
"""The commands `show` and `verify` as a user calls them: --step, --json, --svg, lists, wrong usage.

  command_test.py TRIREME WITH_LIBTORCH [TEST...]
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


class ShowSchedule(unittest.TestCase):
    def test_named(self):
        done = run("show", "schedule", "1f1b", "--stages", "2", "--microbatches", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 1  .    F1.0 B1.0----- F1.1", done.stdout)
        chunks = run("show", "schedule", "interleaved-1f1b", "--stages", "8", "--ranks", "2")
        self.assertIn("8 stages on 2 ranks, 8 micro-batches", chunks.stdout)

    def test_list(self):
        names = [line.split()[0] for line in run("show", "schedule").stdout.splitlines()]
        self.assertEqual(names[0], "naive")  # the simplest first
        for name in names:
            self.assertEqual(run("show", "schedule", name).returncode, 0, name)

    def test_times_and_recomputation(self):
        # The Zero Bubble paper's 1.5B model: its table says 0.2431.
        done = run("show", "schedule", "1f1b", "--stages", "8", "--microbatches", "24",
                   "--times", "18.522,18.086,9.337,0.601", "--json")
        cost = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(f"{cost['bubble_rate']:.4f}", "0.2431")
        again = run("show", "schedule", "gpipe", "--recompute")
        self.assertIn("RC0.0", again.stdout)

    def test_step_waits_for_enter(self):
        cut = run("show", "schedule", "gpipe", "--stages", "2", "--step", typed="\n")
        self.assertIn("time 1: rank 0 F0.1, rank 1 F1.0", cut.stdout)
        self.assertNotIn("time 2:", cut.stdout)

    def test_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "mine.txt"
            file.write_text("# two ranks\n0: F0.0 F0.1 B0.0 B0.1\n1: F1.0 B1.0 F1.1 B1.1\n")
            self.assertIn("2 stages on 2 ranks", run("show", "schedule", str(file)).stdout)
            for text, words in (("0: F0.0 B0.0 B0.0\n", "F0.0 B0.0 >B0.0<"),
                                ("0: F0.0\n", "F0.0 >B0.0?<"),
                                ("0: F0.0 X\n", "F0.0 >X<"),
                                ("0: F0.0 B0.0\n1: B1.0 F1.0\n", ">B1.0<"),
                                ("0: F1.0 F0.0 B1.0 B0.0\n", "deadlock")):
                file.write_text(text)
                done = run("show", "schedule", str(file))
                self.assertEqual(done.returncode, 2, text)
                self.assertIn(words, done.stderr)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            svg, html = pathlib.Path(folder) / "a.svg", pathlib.Path(folder) / "a.html"
            done = run("show", "schedule", "zb-v", "--svg", str(svg), "--html", str(html))
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertTrue(svg.read_text().startswith("<svg"))
            self.assertIn("</html>", html.read_text())

    def test_a_recorded_run_beside_the_simulated_one(self):
        with tempfile.TemporaryDirectory() as folder:
            run_file, svg = pathlib.Path(folder) / "run.jsonl", pathlib.Path(folder) / "a.svg"
            run_file.write_text(run("show", "schedule", "zb-h1", "--json").stdout)
            shown = run("show", "schedule", "--recorded", str(run_file)).stdout
            self.assertIn("recorded  bubble 11.1 %, 27 s from first to last pass", shown)
            self.assertIn("simulated bubble 11.1 %, 27 s:", shown)
            done = run("show", "schedule", "--recorded", str(run_file), "--svg", str(svg))
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertEqual(svg.read_text().count("rank 3</text>"), 2)
            self.assertIn("Leave out \"gpipe\"",
                          run("show", "schedule", "gpipe", "--recorded", str(run_file)).stderr)

    def test_wrong_usage_is_2_and_says_what_there_is(self):
        for arguments, words in ((("1f2b",), "dualpipe-v"),
                                 (("1f1b", "--stages", "4", "--ranks", "2"), "interleaved-1f1b"),
                                 (("zb-v", "--stages", "3"), "2 x 3 = 6"),
                                 (("gpipe", "--times", "1,1"), "18.5,18.1,9.3,0.6"),
                                 (("gpipe", "--times", "1,x,1"), "no times"),
                                 (("gpipe", "--times", "0,0,0"), "no pass takes time"),
                                 (("gpipe", "--microbatches", "-1"), "at least 1"),
                                 (("/nowhere/x.txt",), "cannot read /nowhere/x.txt"),
                                 (("/nowhere/x.txt", "--stages", "2"), "Leave out --stages")):
            done = run("show", "schedule", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)


class ShowGossip(unittest.TestCase):
    def test_values_come_to_the_mean(self):
        done = run("show", "gossip", "one_peer", "--ranks", "8", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([event["event"] for event in events], ["show"] + ["round"] * 4)
        self.assertEqual(events[1]["values"], list(range(8)))
        self.assertEqual(events[-1]["values"], [3.5] * 8)
        for event in events[1:]:
            self.assertAlmostEqual(sum(event["values"]), 28)
        self.assertEqual([(one["from"], one["to"]) for one in events[3]["messages"]],
                         [(rank, (rank + 2) % 8) for rank in range(8)])

    def test_list_step_and_files(self):
        names = [line.split()[0] for line in run("show", "gossip").stdout.splitlines()]
        self.assertEqual(names, ["ring", "exponential", "one_peer", "random"])
        cut = run("show", "gossip", "ring", "--ranks", "4", "--rounds", "3", "--step", typed="\n")
        self.assertIn("round 1 ", cut.stdout)
        self.assertNotIn("round 2 ", cut.stdout)
        with tempfile.TemporaryDirectory() as folder:
            svg, html = pathlib.Path(folder) / "a.svg", pathlib.Path(folder) / "a.html"
            done = run("show", "gossip", "random", "--svg", str(svg), "--html", str(html))
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertTrue(svg.read_text().startswith("<svg"))
            self.assertIn("</html>", html.read_text())

    def test_wrong_usage_is_2_and_says_what_there_is(self):
        for arguments, words in ((("star",), "one_peer"), (("ring", "--ranks", "1"), "2 to 24"),
                                 (("ring", "--rounds", "25"), "1 to 24")):
            done = run("show", "gossip", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)


class ShowStrategies(unittest.TestCase):
    def test_list_drawing_and_files(self):
        listed = run("show", "strategies")
        names = [line.split()[0] for line in listed.stdout.splitlines() if line[0] != " "]
        self.assertIn("MultiWorkerMirrored", names)
        done = run("show", "strategies", "fully_sharded_data_parallel", "--ranks", "2", "--json")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(events[0]["strategy"], "ZeRO3", done.stderr)
        self.assertEqual([event["weights"] for event in events if event["event"] == "process"],
                         ["slice 1/2", "slice 2/2"])
        with tempfile.TemporaryDirectory() as folder:
            svg, html = pathlib.Path(folder) / "a.svg", pathlib.Path(folder) / "a.html"
            for name in names:
                done = run("show", "strategies", name, "--svg", str(svg), "--html", str(html))
                self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
                self.assertTrue(svg.read_text().startswith("<svg"))
                self.assertIn("</html>", html.read_text())

    def test_wrong_usage_is_2_and_says_what_there_is(self):
        for arguments, words in ((("Miror",), "Did you mean Mirrored?"),
                                 (("Mirrored", "--ranks", "9"), "1 to 8"),
                                 (("OneDevice", "--ranks", "2"), "the job has 2"),
                                 (("HSDP", "--ranks", "3"), "3 ranks on 2 hosts")):
            done = run("show", "strategies", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)


class ShowZero3(unittest.TestCase):
    def test_moments(self):
        done = run("show", "zero3", "--ranks", "3", "--blocks", "2", "--json")
        if not WITH_LIBTORCH:
            self.assertEqual(done.returncode, 2)
            self.assertIn("without LibTorch", done.stderr)
            return
        self.assertEqual(done.returncode, 0, done.stderr)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        names = [event["name"] for event in events if event.get("rank") == 2]
        self.assertEqual(names, ["F0", "F1", "B1", "B0", "end"])
        cut = run("show", "zero3", "--step", typed="\n")
        self.assertEqual(cut.stdout.count("Enter: the next moment"), 2)
        wrong = run("show", "zero3", "--ranks", "9")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("2 to 8", wrong.stderr)
        with tempfile.TemporaryDirectory() as folder:
            svg, html = pathlib.Path(folder) / "a.svg", pathlib.Path(folder) / "a.html"
            done = run("show", "zero3", "--svg", str(svg), "--html", str(html))
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertTrue(svg.read_text().startswith("<svg"))
            self.assertIn("</html>", html.read_text())


class ShowSteps(unittest.TestCase):
    def test_each(self):
        for name in ("overlap", "zero1", "tensor", "context", "expert"):
            done = run("show", name, "--ranks", "2", "--json")
            if not WITH_LIBTORCH:
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"show {name} is not in a trireme that was built without LibTorch", done.stderr)
                continue
            self.assertEqual(done.returncode, 0, done.stderr)
            events = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual({event["rank"] for event in events if event["event"] == "span"}, {0, 1})
            with tempfile.TemporaryDirectory() as folder:
                svg, html = pathlib.Path(folder) / "a.svg", pathlib.Path(folder) / "a.html"
                done = run("show", name, "--svg", str(svg), "--html", str(html))
                self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
                self.assertTrue(svg.read_text().startswith("<svg"))
                self.assertIn("</html>", html.read_text())
            wrong = run("show", name, "--ranks", "9")
            self.assertEqual(wrong.returncode, 2)
            self.assertIn("2 to 8", wrong.stderr)


class ShowServer(unittest.TestCase):
    CONFIG = str(pathlib.Path(__file__).parents[2] / "configs" / "gpt-nano.toml")

    def setUp(self):
        if not WITH_LIBTORCH:
            done = run("show", "server")
            self.assertEqual(done.returncode, 2)
            self.assertIn("show server is not in a trireme that was built without LibTorch", done.stderr)

    def test_a_run(self):
        if not WITH_LIBTORCH:
            return
        done = run("show", "server", "--workers", "3", "--servers", "1", "--slow", "0:3", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual({event["event"] for event in events}, {"show", "step", "push", "update", "summary"})
        self.assertEqual({event["worker"] for event in events if event["event"] == "step"}, {0, 1, 2})
        cut = run("show", "server", "--step", typed="\n").stdout
        self.assertEqual(cut.count("Enter: the next moment"), 2)

    def test_files(self):
        if not WITH_LIBTORCH:
            return
        for arguments in (["--staleness", "-1"], [self.CONFIG, "--servers", "3"]):
            with tempfile.TemporaryDirectory() as folder:
                svg, html = pathlib.Path(folder) / "a.svg", pathlib.Path(folder) / "a.html"
                done = run("show", "server", *arguments, "--svg", str(svg), "--html", str(html))
                self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
                self.assertTrue(svg.read_text().startswith("<svg"))
                self.assertIn("</html>", html.read_text())

    def test_the_layout_of_a_configuration(self):
        if not WITH_LIBTORCH:
            return
        shown = run("show", "server", self.CONFIG, "--set", "parallel.sync=server", "--set", "server.count=3")
        self.assertIn("gpt-nano on 3 parameter servers", shown.stdout)
        self.assertIn("server 2  1.1 MB, 33 %", shown.stdout)

    def test_wrong_usage_is_2_and_says_what_there_is(self):
        if not WITH_LIBTORCH:
            return
        for arguments, words in ((("--workers", "11"), "1 to 10"), (("--slow", "3"), "3:5"),
                                 (("--slow", "4:5"), "from 0 on"), (("--staleness", "-2"), "-1 (no bound)"),
                                 (("--backup", "1"), "synchronous training"), (("--link", "fast"), "25us,1GB/s"),
                                 (("/nowhere.toml",), "/nowhere.toml"),
                                 ((self.CONFIG, "--workers", "2"), "--workers is for a run"),
                                 ((self.CONFIG, "--step"), "--step is for a run"),
                                 (("--set", "server.count=2"), "--set requires CONFIG")):
            done = run("show", "server", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)


class BenchServer(unittest.TestCase):
    def test_predicted_simulated_and_measured(self):
        if not WITH_LIBTORCH:
            return
        with tempfile.TemporaryDirectory() as folder:
            figures, svg = pathlib.Path(folder) / "a.jsonl", pathlib.Path(folder) / "a.svg"
            done = run("bench", "server", "--workers", "1", "3", "--servers", "1", "--all-reduce", "ring",
                       "--bytes", "16KiB", "--measure", "1", "2", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            figures.write_text(done.stdout)
            events = [json.loads(line) for line in done.stdout.splitlines()]
            sources = [event["source"] for event in events if event["event"] == "exchange"]
            self.assertEqual({source: sources.count(source) for source in sources},
                             {"measured": 4, "predicted": 4, "simulated": 4})
            again = run("bench", "server", "--measured", str(figures), "--workers", "2", "--svg", str(svg))
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertIn("one exchange of 16 KiB", again.stdout)
            self.assertIn("measured here", svg.read_text())

    def test_each_count_is_taken_once_and_in_order(self):
        if not WITH_LIBTORCH:
            return
        done = run("bench", "server", "--workers", "3", "1", "3", "--servers", "1", "1", "--all-reduce", "ring",
                   "--bytes", "4KiB", "--json")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(event.get("servers", 0), event["workers"]) for event in events
                          if event.get("source") == "simulated"], [(1, 1), (1, 3), (0, 1), (0, 3)], done.stderr)

    def test_wrong_usage_is_2_and_says_what_there_is(self):
        if not WITH_LIBTORCH:
            return
        for arguments, words in ((("--all-reduce", "rnig"), "show all-reduce"), (("--bytes", "1GiB"), "64 MiB"),
                                 (("--workers", "65"), "65"), (("--measured", "/nowhere"), "/nowhere")):
            done = run("bench", "server", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)


class ShowTreeSum(unittest.TestCase):
    def test_each_number_of_ranks(self):
        done = run("show", "tree-sum", "--ranks", "1,3", "--leaves", "6", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        one, three = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual((one["ranks"], three["ranks"]), (1, 3))
        self.assertEqual(one["sum"], three["sum"])
        nodes = lambda tree: sorted((add["first"], add["count"]) for add in tree["additions"])
        self.assertEqual(nodes(one), nodes(three))
        self.assertIn("from rank 1", run("show", "tree-sum", "--ranks", "2").stdout)
        with tempfile.TemporaryDirectory() as folder:
            svg, html = pathlib.Path(folder) / "a.svg", pathlib.Path(folder) / "a.html"
            done = run("show", "tree-sum", "--svg", str(svg), "--html", str(html))
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertTrue(svg.read_text().startswith("<svg"))
            self.assertIn("</html>", html.read_text())

    def test_wrong_usage_is_2_and_says_what_there_is(self):
        for arguments, words in ((("--ranks", "17"), "1 to 16"), (("--leaves", "1"), "2 to 32"),
                                 (("--ranks", "some"), "--ranks")):
            done = run("show", "tree-sum", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)


class ShowPartition(unittest.TestCase):
    GRAPHS = pathlib.Path(__file__).parents[2] / "configs" / "graphs"

    def test_a_graph(self):
        done = run("show", "partition", str(self.GRAPHS / "dlrm.txt"), "--stages", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("stage 2", done.stdout)
        self.assertIn("imbalance", done.stdout)
        lines = run("show", "partition", str(self.GRAPHS / "dlrm.txt"), "--stages", "3", "--json")
        events = [json.loads(line) for line in lines.stdout.splitlines()]
        self.assertEqual([event["event"] for event in events], ["stage"] * 3 + ["cost"])

    def test_memory_by_schedule(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "chain.txt"
            file.write_text("".join(f"node b{i} 1ms 0 10MB\n" for i in range(6)) +
                            "".join(f"value b{i} 1MB b{i + 1}\n" for i in range(5)))
            arguments = ("show", "partition", str(file), "--stages", "2", "--json")
            sizes = lambda done: [len(json.loads(line)["nodes"])
                                  for line in done.stdout.splitlines()[:-1]]
            self.assertEqual(sizes(run(*arguments)), [3, 3])
            # 1F1B keeps two micro-batches on the first stage.
            self.assertEqual(sizes(run(*arguments, "--memory", "40MB", "--schedule", "1f1b")), [2, 4])
            refused = run(*arguments, "--memory", "30MB", "--schedule", "1f1b")
            self.assertEqual(refused.returncode, 2)
            self.assertIn("2 stages do not fit into 30.0 MB each", refused.stderr)

    def test_a_node_that_no_device_holds_is_split_and_drawn(self):
        arguments = ("show", "partition", str(self.GRAPHS / "dlrm.txt"), "--stages", "3", "--memory", "500MB")
        self.assertIn("bags.0 alone takes 903 MB of 500 MB: split its layers over 2 ranks", run(*arguments).stdout)
        with tempfile.TemporaryDirectory() as folder:
            svg = pathlib.Path(folder) / "a.svg"
            done = run(*arguments, "--svg", str(svg))
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertIn("bags.1 alone takes 703 MB", svg.read_text())

    def test_svg(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = pathlib.Path(folder) / "a.svg"
            done = run("show", "partition", str(self.GRAPHS / "resnet.txt"), "--stages", "2", "--svg",
                       str(svg))
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertTrue(svg.read_text().startswith("<svg"))

    def test_wrong_usage_is_2(self):
        graph = str(self.GRAPHS / "dlrm.txt")
        for arguments, words in (((), "FILE"), (("/nowhere/x",), "cannot read /nowhere/x"),
                                 ((graph, "--stages", "99"), "99 stages of"),
                                 ((graph, "--memory", "big"), "is not a size"),
                                 ((graph, "--slack", "-1"), "slack"),
                                 ((graph, "--schedule", "zb-v"), "one stage a rank")):
            done = run("show", "partition", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)


class Verify(unittest.TestCase):
    def test_one_count_and_a_range(self):
        done = run("verify", "all-reduce", "tree", "--ranks", "3..5", "--seeds", "6")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("all-reduce tree is right on 3 to 5 ranks: 6 simulated runs", done.stdout)
        hosts = run("verify", "all-reduce", "hierarchical", "--ranks", "5", "--hosts", "2", "--seeds", "3")
        self.assertEqual(hosts.returncode, 0, hosts.stderr)
        self.assertIn("is right on 5 to 5 ranks on 2 hosts: 3 simulated runs", hosts.stdout)
        one = run("verify", "scatter", "--ranks", "4", "--seeds", "2", "--json")
        self.assertEqual(json.loads(one.stdout)["right"][0]["ranks"], 4)

    def test_wrong_usage_is_2(self):
        for arguments in (("all-reduce", "rnig"), ("all-reduce", "ring", "--ranks", "5..2"),
                          ("all-reduce", "ring", "--ranks", "some"),
                          ("all-reduce", "ring", "--ranks", "4", "--hosts", "5"), ()):
            self.assertEqual(run("verify", *arguments).returncode, 2, arguments)


class WithoutLibTorch(unittest.TestCase):
    def test_commands_that_need_it_say_so(self):
        done = run("train", "x.toml", "--ranks", "2")
        self.assertEqual(done.returncode, 2)
        if not WITH_LIBTORCH:
            self.assertIn("built without LibTorch", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
