#!/usr/bin/env python3
"""`trireme bench comm` as a user calls it: tables, --json, a simulated network, wrong usage.

  command_test.py TRIREME [MPIRUN...]
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import unittest

TRIREME, MPIRUNS = sys.argv[1], sys.argv[2:]


def run(*arguments, under=()):
    environment = dict(os.environ, TRIREME_TUNING="/nowhere/tuning.toml")
    return subprocess.run([*under, TRIREME, "bench", "comm", *arguments], env=environment,
                          capture_output=True, text=True, check=False, timeout=60)


class Bench(unittest.TestCase):
    def lines(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_json_is_all_that_stands_on_stdout(self):
        measured = self.lines(run("all-reduce", "broadcast", "--ranks", "2", "--sizes", "8B",
                                  "1KiB", "--seconds", "0.001", "--json"))
        self.assertEqual([(one["collective"], one["bytes"]) for one in measured],
                         [("all_reduce", 8), ("all_reduce", 1024),
                          ("broadcast", 8), ("broadcast", 1024)])
        for one in measured:
            self.assertEqual((one["event"], one["ranks"], one["transport"]), ("bench", 2, "shm"))
            self.assertGreater(one["seconds"], 0)
        chosen = self.lines(run("--explain", "--sizes", "8B", "--json"))
        self.assertEqual([one["event"] for one in chosen], ["choice"])

    def test_a_simulated_link_takes_the_time_that_it_says(self):
        link = ("--link", "1ms,1MB/s", "--ranks", "4", "--json", "--sizes", "64KiB")
        ring, = self.lines(run("--algorithm", "ring", *link))
        self.assertEqual((ring["transport"], ring["link"]), ("sim", "1ms,1MB/s"))
        # 6 rounds of 1 ms and 16 KiB at 1 MB/s each; the agreement before them and computing take a
        # little more.
        least = 6 * (1e-3 + 16384e-6)
        self.assertGreater(ring["seconds"], least)
        self.assertLess(ring["seconds"], 2 * least)
        naive, = self.lines(run("--algorithm", "naive", *link))
        self.assertGreater(naive["seconds"], 3 * 65536e-6)  # three whole buffers, one link
        text = run("--transport", "sim", "--ranks", "3", "--sizes", "1KiB")
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertIn("all_reduce, 3 ranks, sim of 25us,1GB/s, auto", text.stdout)

    def test_direct_is_an_algorithm_of_collectives_that_only_move(self):
        for collective in ("all-reduce", "broadcast", "all-to-all"):
            with self.subTest(collective):
                done = run(collective, "--algorithm", "direct", "--sizes", "4KiB", "--transport",
                           "shm", "--seconds", "0.0001")
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_tuning_is_written_where_it_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "new", "table.toml")
            done = run("--tune", "--json", "--out", path, "--seconds", "0.0001")
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertIn("written: " + path, done.stderr)
            with open(path) as file:
                self.assertIn('algorithm = "ring"', file.read())

    def test_a_table_that_is_absent_is_named_once(self):
        done = run("--ranks", "2", "--sizes", "8B", "--seconds", "0.001")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("TRIREME_TUNING names /nowhere/tuning.toml"), 1,
                         done.stderr)

    def refused(self, *arguments, words, under=()):
        done = run(*arguments, under=under)
        text = done.stdout + done.stderr
        self.assertEqual(done.returncode, 2, text)
        for word in words:
            self.assertIn(word, text)
            self.assertEqual(text.count(word), 1, text)  # said once
        self.assertEqual(done.stdout, "")

    def test_wrong_usage_is_2_said_once_and_before_anything_starts(self):
        for arguments, words in (
                (("all-redcue",), ("unknown collective all_redcue", "Choose among all_reduce, ")),
                (("--algorithm", "rnig"), ("all_reduce has no algorithm rnig", "halving_doubling")),
                (("broadcast", "--algorithm", "naive"), ("broadcast has no algorithm", "binomial")),
                (("--ranks", "0"), ("0 is out of range", "trireme bench comm --help")),
                (("--sizes", "8X"), ('"8X" is not a size',)),
                (("--sizes", "0B"), ("is not a multiple of 4 bytes, the size of one f32 element",)),
                (("--transport", "udp"), ("unknown transport 'udp'", "or sim")),
                (("--transport", "mpi"), ("needs ranks that mpirun started",)),
                (("--link", "fast"), ('"fast" is not a link',)),
                (("--link", "1us,1GB/s", "--transport", "tcp"), ("the transport is tcp",)),
                (("--link", "1us,1GB/s", "--tune"), ("not a simulated network",)),
                (("--out", "x.toml"), ("--out requires --tune",)),
                (("--tune", "--out", "/proc/x/table.toml"), ("cannot write /proc/x/table.toml",))):
            with self.subTest(arguments):
                self.refused(*arguments, words=words)

    def test_under_torchrun_and_srun(self):
        for launcher, variables in (
                ("torchrun", ("RANK={}", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_PORT=4000",
                              "MASTER_ADDR=localhost", f"TORCHELASTIC_RUN_ID={os.getpid()}")),
                ("srun", ("SLURM_PROCID={}", "SLURM_NTASKS=2", f"SLURM_JOB_ID={os.getpid()}",
                          "SLURM_STEP_ID=0"))):
            with self.subTest(launcher):
                under = [("env", *(one.format(rank) for one in variables)) for rank in (0, 1)]
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    done = list(pool.map(lambda one: run(
                        "--sizes", "1KiB", "--json", "--seconds", "0.001", under=one), under))
                one, = self.lines(done[0])
                self.assertEqual((one["ranks"], one["transport"]), (2, "shm"))
                self.assertEqual((done[1].returncode, done[1].stdout), (0, ""), done[1].stderr)
                self.refused("--ranks", "3", under=under[0],
                             words=(f"--ranks 3, but {launcher} started 2 processes",))
                self.refused("--transport", "mpi", under=under[0],
                             words=("needs ranks that mpirun started",))

    def test_under_mpirun(self):
        for mpirun in MPIRUNS:
            under = (mpirun, "-n", "2")
            with self.subTest(mpirun):
                for transport in ("shm", "mpi"):
                    one, = self.lines(run("--transport", transport, "--sizes", "1KiB", "--json",
                                          "--seconds", "0.001", under=under))
                    self.assertEqual((one["ranks"], one["transport"]), (2, transport))
                wrong = run("--ranks", "3", under=under)
                self.assertEqual(wrong.returncode, 2, wrong.stderr)
                self.assertEqual(wrong.stderr.count("--ranks 3, but mpirun"), 1, wrong.stderr)
                wrong = run("--link", "1us,1GB/s", under=under)
                self.assertEqual(wrong.returncode, 2, wrong.stderr)
                self.assertEqual(wrong.stderr.count("in one process, but mpirun"), 1, wrong.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
