#!/usr/bin/env python3
"""A training that Slurm stops twice and queues again ends with the weights of one that was not stopped.

  slurm.py requeue_test.py TRIREME signal|limit

The script is that of `trireme launch --print-sbatch`. signal: the ranks get SIGUSR1 by scancel, as before a
time limit; limit: the time limit of one minute itself, which takes some minutes.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tiny_training  # noqa: E402

TRIREME, MODE = sys.argv.pop(1), sys.argv.pop(1)
# A step of the job takes this long at least: 2 ranks send about 80 kB each.
STEPS, RATE = {"signal": (150, 1_000_000), "limit": (500, 400_000)}[MODE]


def run(*command, **more):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}")
    return done.stdout


class Requeue(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trireme-requeue-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        tiny_training.write(self.folder, more=f"steps = {STEPS}\n")
        self.log = self.folder / "log"
        self.job = None

    def field(self, name):
        shown = run("scontrol", "show", "job", "-o", self.job)
        return dict(one.split("=", 1) for one in shown.split() if "=" in one)[name]

    def text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait_for(self, what, condition, seconds):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or self.field("JobState") in ("FAILED", "TIMEOUT", "CANCELLED"):
                self.fail(f"{what} did not come: {run('scontrol', 'show', 'job', self.job)}\n{self.text()}")
            time.sleep(0.1)

    def submit(self, *options):
        script = self.folder / "job.sh"
        script.write_text(run(TRIREME, "launch", "--print-sbatch", "tiny.toml", "-n", "2", cwd=self.folder))
        environment = dict(os.environ, TRIREME_COMM_TRANSPORT="tcp", TRIREME_COMM_RATE=str(RATE))
        self.job = run("sbatch", "--parsable", f"--output={self.log}", *options, str(script), cwd=self.folder,
                       env=environment).strip()
        self.addCleanup(subprocess.run, ["scancel", self.job], check=False)

    def test_the_weights_are_those_of_a_run_that_was_not_stopped(self):
        run(TRIREME, "train", "tiny.toml", "--ranks", "2", "--out", "runs/alone", cwd=self.folder)
        if MODE == "signal":
            self.submit()
            for time_number in (1, 2):
                self.wait_for("a training", lambda: self.text().count("expected time") == time_number, 120)
                run("scancel", "--signal=USR1", self.job)
        else:
            self.submit("--time=1", "--signal=USR1@5")
        self.wait_for("the end", lambda: self.field("JobState") == "COMPLETED", 540)
        self.assertGreaterEqual(int(self.field("Restarts")), 2, self.text())
        self.assertGreaterEqual(self.text().count("checkpoint written"), 2, self.text())
        self.assertIn("SIGUSR1", self.text())
        hashes = [run(TRIREME, "inspect", f"runs/{name}", "--hash", cwd=self.folder) for name in ("alone", "tiny")]
        self.assertEqual(hashes[1], hashes[0], self.text())

    # Its tasks end with the same code as before a time limit.
    @unittest.skipIf(MODE == "limit", "with signal")
    def test_a_job_that_its_user_cancels_is_not_queued_again(self):
        self.submit()
        self.wait_for("a training", lambda: "expected time" in self.text(), 120)
        run("scancel", self.job)
        end = time.monotonic() + 120
        while self.field("JobState") not in ("CANCELLED", "COMPLETED", "FAILED") and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual((self.field("JobState"), self.field("Restarts")), ("CANCELLED", "0"), self.text())


if __name__ == "__main__":
    unittest.main()
