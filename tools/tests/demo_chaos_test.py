#!/usr/bin/env python3
"""Tests of demo_chaos.py, with a program in place of trireme."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "demo_chaos.py"


class DemoChaos(unittest.TestCase):
    def test_a_training_that_does_nothing_is_given_up(self):
        with tempfile.TemporaryDirectory() as folder:
            trireme = pathlib.Path(folder, "trireme")
            trireme.write_text("#!/bin/sh\necho it hangs\nexec sleep 1000\n")
            trireme.chmod(0o700)
            done = subprocess.run([sys.executable, TOOL, trireme, "--patience", "3"], timeout=60, text=True,
                                  check=False, capture_output=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("the training has written no event for 3 s; its last lines:\nit hangs", done.stderr)


if __name__ == "__main__":
    unittest.main()
