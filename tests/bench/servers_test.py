#!/usr/bin/env python3
"""bench/run_servers.py: gRPC's best counts, goals are judged by what was measured, and missing peers have no row."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import run_servers  # noqa: E402


class Servers(unittest.TestCase):
    def test_of_grpc_the_best_pieces_count(self):
        found = run_servers.best_pieces({"gRPC, tcp, 0": 3.0, "gRPC, tcp, 1048576": 2.0, "tcp, asynchronous": 1.0})
        self.assertEqual(found, {"gRPC, tcp": 2.0, "tcp, asynchronous": 1.0})

    def test_goals_that_are_reached_and_missed(self):
        seconds = {"limit, asynchronous": .01, "shm, asynchronous": .02, "limit, synchronous": .01, "shm, synchronous": .0125,
                   "tcp, asynchronous": .1, "gRPC, tcp": .2}
        text = "\n".join(run_servers.exchange_tables(seconds, 64 << 20))
        self.assertIn("| shm, asynchronous: 0.6 times as fast as limit, asynchronous | 0.50 | missed |", text)
        self.assertIn("| shm, synchronous: 0.6 times as fast as limit, synchronous | 0.80 | reached |", text)
        self.assertIn("| tcp, asynchronous: 1.5 times as fast as gRPC, tcp | 2.00 | reached |", text)
        self.assertIn("| shm, asynchronous | 20.0 ms | 6.71 |", text)
        self.assertNotIn("TensorFlow", text)

    def test_a_straggler_is_compared_with_the_run_without(self):
        rows = run_servers.straggler_table({"none | s = 4": [40, 40, 40, 40], "worker 3 always | s = 4": [30, 30, 30, 8]})
        self.assertEqual(rows[-1], "| worker 3 always | s = 4 | 30.0, 30.0, 30.0, 8.0 | 75% |")


if __name__ == "__main__":
    unittest.main()
