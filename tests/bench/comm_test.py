#!/usr/bin/env python3
"""bench/run_comm.py: which figures count, and programs that fail, fall silent or are not there."""
import argparse
import contextlib
import io
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import run_comm  # noqa: E402
import turns  # noqa: E402

OPTIONS = argparse.Namespace(rounds=3, priority=False, best=False, seconds=0.05)


def measured(lines_of_run, options=OPTIONS):
    """measure() of 8 and 16 bytes; lines_of_run(sizes) are the lines of the next run of the only program. And what it says."""
    found = {"arena": lambda sizes: sizes}
    with mock.patch.object(run_comm, "Programs", lambda *_: argparse.Namespace(found=found)), \
            mock.patch.object(run_comm, "run", lambda command, prefix, silence: lines_of_run(command)), \
            contextlib.redirect_stderr(io.StringIO()) as errors:
        return run_comm.measure(options, "all_reduce", 2, "shm", [8, 16]), errors.getvalue()


class Comm(unittest.TestCase):
    def test_figures_are_medians_over_the_rounds(self):
        seconds = iter((1.0, 10.0, 3.0, 30.0, 2.0, 20.0))

        def line(sizes):
            one = next(seconds)
            return [{"bytes": int(sizes[0]), "seconds": one, "stream_seconds": one / 2}]

        self.assertEqual(measured(line)[0], {"arena": {8: 2.0, 16: 20.0}, "stream": {8: 1.0, 16: 10.0}})

    def test_a_size_that_lacks_a_round_has_no_figure(self):
        runs = iter(range(6))
        figures, said = measured(lambda sizes: [{"bytes": int(sizes[0]), "seconds": 1.0}] if next(runs) != 3 else [])
        self.assertEqual(figures, {"arena": {8: 1.0}})
        self.assertIn("arena, 16 bytes: left out, as 2 of 3 rounds ended", said)

    def test_a_program_of_ours_that_never_ends_keeps_its_column(self):
        figures, _ = measured(lambda sizes: [])
        self.assertEqual(figures, {"arena": {}})
        self.assertIn("arena", run_comm.report.tables(figures | {"yard": {8: 1.0}}))

    def test_a_silent_program_is_killed_and_its_lines_count(self):
        def silent(program, limit):
            yield b'{"bytes": 8, "seconds": 1.0}'
            raise TimeoutError

        with mock.patch.object(turns, "lines_of", silent), contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(run_comm.run(["sleep", "1000"], [], 7), [{"bytes": 8, "seconds": 1.0}])
        self.assertIn("killed, as it printed nothing for 7 s: sleep 1000", errors.getvalue())

    def test_a_program_that_fails_ends_the_bench(self):
        with self.assertRaisesRegex(SystemExit, "failed with 3"):
            run_comm.run([sys.executable, "-c", "raise SystemExit(3)"], [], 60)

    def test_a_table_that_nothing_can_measure_is_left_out(self):
        nothing = argparse.Namespace(found={})
        with mock.patch.object(run_comm, "Programs", lambda *_: nothing), \
                mock.patch.object(sys, "argv", ["run_comm.py", "--transport", "mpi"]), \
                contextlib.redirect_stderr(io.StringIO()) as errors:
            run_comm.main()
        self.assertIn("all_reduce, 2 ranks, mpi: no table", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
