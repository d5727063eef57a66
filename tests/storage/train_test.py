#!/usr/bin/env python3
"""`trireme train`, `eval` and `inspect` with checkpoints in a bucket, as real processes.

  train_test.py TRIREME
"""
import http.client
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import s3_server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tiny_training  # noqa: E402

PROGRAM = ""
SERVER = {}


def bucket_keys(prefix):
    client = http.client.HTTPConnection(*s3_server.Front.moto)
    client.request("GET", f"/models?list-type=2&prefix={prefix}/")
    return re.findall("<Key>(.*?)</Key>", client.getresponse().read().decode())


def steps_of(prefix):
    return sorted(int(key.split("step-")[1][:8]) for key in bucket_keys(prefix)
                  if key.endswith("manifest.json"))


class TrainTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(self.inject)
        self.prefix = self._testMethodName.replace("_", "-")
        tiny_training.write(self.folder, more='warmup = 5\nsteps = 12\nschedule = "constant"\n[checkpoint]\nevery = 4\n')

    @staticmethod
    def inject(*faults):
        with s3_server.FAULTS.lock:
            s3_server.FAULTS.left, s3_server.FAULTS.injected = list(faults), 0

    def environment(self, **more):
        return dict(os.environ, TRIREME_S3_ENDPOINT=SERVER["endpoint"], OMP_NUM_THREADS="1",
                    AWS_ACCESS_KEY_ID=s3_server.ACCESS_KEY, AWS_SECRET_ACCESS_KEY=s3_server.SECRET_KEY,
                    XDG_CACHE_HOME=tiny_training.cache(PROGRAM), **more)

    def start(self, *arguments, environment=None):
        return subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, text=True,
                                env=environment or self.environment(), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def run_command(self, *arguments, code=0, environment=None):
        running = self.start(*arguments, environment=environment)
        out, err = running.communicate(timeout=120)
        self.assertEqual(running.returncode, code, f"{arguments}\n{out}\n{err}")
        return out + err

    def train(self, out, *arguments, place=None, code=0, environment=None):
        return self.run_command("train", "tiny.toml", "--out", out, "--set",
                                f"checkpoint.path={place or 's3://models/' + self.prefix}", *arguments,
                                code=code, environment=environment)

    def wait_for_step(self, running, step):
        while not [one for one in steps_of(self.prefix) if one >= step]:
            self.assertIsNone(running.poll(), "it ended")
            time.sleep(0.02)

    def test_sharded_training_is_saved_there_and_read_from_there(self):
        self.train("run", "--ranks", "2", "--set", "parallel.sync=zero1", "--set", "checkpoint.keep=2")
        self.assertEqual(steps_of(self.prefix), [8, 12])
        self.assertFalse((self.folder / "run/checkpoint").exists())
        self.assertFalse([key for key in bucket_keys(self.prefix) if key.endswith(".lock")])
        there = "s3://models/" + self.prefix
        hashes = {self.run_command("inspect", place, "--hash").strip()
                  for place in ("run", there, there + "/step-00000012")}
        self.run_command("train", "tiny.toml", "--out", "local")
        hashes.add(self.run_command("inspect", "local", "--hash").strip())
        self.assertEqual(len(hashes), 1, "the same weights, bit for bit")
        self.assertNotIn(self.run_command("inspect", there + "/step-00000008", "--hash").strip(), hashes)
        self.assertIn("after step 12", self.run_command("eval", "run"))
        self.assertIn("continuing after step 12",
                      self.run_command("train", "--resume", "run", "--set", "train.steps=14"))
        self.assertEqual(steps_of(self.prefix)[-1], 14)
        self.assertIn("already holds a checkpoint, of step 14", self.train("other", code=2))
        self.assertFalse((self.folder / "other").exists())
        said = self.run_command("train", "--resume", "run", "--set", "checkpoint.path=elsewhere", code=2)
        self.assertIn("a run's checkpoints stay in one place", said)

    def test_what_refuses_is_refused_before_anything_starts(self):
        for place, words in (("s3://nowhere/x", "NoSuchBucket"), ("s3://denied/x", "403 AccessDenied"),
                             ("gs://bucket/x", "cannot be kept in gs://bucket/x"),
                             ("s3://Bad_Name/x", "not the name of a bucket")):
            with self.subTest(place):
                self.assertIn(words, self.train("run", place=place, code=2))
                self.assertFalse((self.folder / "run").exists())
        environment = self.environment()
        del environment["AWS_SECRET_ACCESS_KEY"]
        self.assertIn("s3:// needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                      self.train("run", code=2, environment=environment))
        self.assertIn("keep_best compares validations",
                      self.train("run", "--set", "checkpoint.keep_best=2", "--set",
                                 "train.validate_every=0", code=2))

    def test_a_killed_run_goes_on_where_there_is_nothing_but_the_bucket(self):
        running = self.start("train", "tiny.toml", "--out", "run", "--set", "train.steps=1000000",
                             "--set", "checkpoint.path=s3://models/" + self.prefix)
        self.wait_for_step(running, 8)
        self.assertIn("in use by process", self.train("other", "--resume", "auto", code=2))
        running.send_signal(signal.SIGKILL)
        running.communicate()
        shutil.rmtree(self.folder / "run")
        done = steps_of(self.prefix)[-1]
        end = str(done + 6)
        said = self.train("run", "--resume", "auto", "--ranks", "2", "--set", "train.steps=" + end)
        self.assertIn(f"continuing after step {done:,}", said)
        self.run_command("train", "tiny.toml", "--out", "whole", "--set", "train.steps=" + end)
        self.assertEqual(self.run_command("inspect", "run", "--hash"),
                         self.run_command("inspect", "whole", "--hash"))

    def test_a_backup_in_the_bucket_is_gone_on_from_and_removed(self):
        running = self.start("train", "tiny.toml", "--out", "run", "--backup", "--set", "train.steps=1000000",
                             "--set", "checkpoint.path=s3://models/" + self.prefix)
        self.wait_for_step(running, 8)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        shutil.rmtree(self.folder / "run")
        end = steps_of(self.prefix)[-1] + 6
        said = self.train("run", "--backup", "--set", f"train.steps={end}")
        self.assertIn("continuing after step", said)
        self.assertIn(f"the checkpoint of step {end:,} stays", said)
        self.assertEqual(steps_of(self.prefix), [end])

    def test_a_bucket_that_denies_for_a_while_holds_up_no_step(self):
        self.inject({"kind": "deny", "method": "PUT", "contains": "safetensors", "times": 2})
        said = self.train("run")
        self.assertIn("is not saved: cannot write", said)
        self.assertIn("The training goes on and tries again", said)
        self.assertIn("is saved; the storage had failed for", said)
        self.assertEqual(steps_of(self.prefix)[-1], 12)

    def test_without_patience_the_run_ends_with_170_and_goes_on_later(self):
        self.inject({"kind": "deny", "method": "PUT", "contains": "step-00000008", "times": 1000})
        said = self.train("run", "--set", "checkpoint.patience=0", code=170)
        self.assertIn("AccessDenied", said)
        self.assertEqual(steps_of(self.prefix), [4])
        self.inject()
        self.assertIn("continuing after step 4", self.run_command("train", "--resume", "run"))
        self.assertEqual(steps_of(self.prefix), [4, 8, 12])

    def test_the_best_by_validation_stays(self):
        said = self.train("run", "--set", "checkpoint.keep_best=1", "--set", "checkpoint.keep=1",
                          "--set", "train.validate_every=4", "--set", "train.learning_rate=0.5",
                          "--set", "train.steps=20")
        losses = {int(step): float(loss) for step, loss in
                  re.findall(r"validation after step (\d+): loss ([\d.]+)", said)}
        self.assertGreaterEqual(len(losses), 5, said)
        best = min((loss, step) for step, loss in losses.items() if step > 0)[1]
        self.assertEqual(steps_of(self.prefix), sorted({best, 20}))

    def test_an_evaluator_copies_from_the_bucket(self):
        said = self.train("run", "--evaluator", "1", "--ranks", "2", "--set", "checkpoint.keep=9")
        self.assertIn("the best of 3 evaluated checkpoints", said)
        self.assertTrue(list((self.folder / "run/best/checkpoint").glob("step-*")))
        self.assertIn("after step", self.run_command("eval", "run/best"))

    def test_an_evaluator_waits_for_a_bucket_that_denies_for_a_while(self):
        # Nobody else reads weights there.
        self.inject({"kind": "deny", "method": "HEAD", "contains": "model.safetensors", "times": 2})
        said = self.train("run", "--evaluator", "1", "--ranks", "2", "--set", "checkpoint.keep=9")
        self.assertIn("[eval] the evaluator waits: cannot look at " + self.prefix, said)
        self.assertIn("[eval] the evaluator goes on; the storage had failed for", said)
        self.assertIn("the best of 3 evaluated checkpoints", said)

    def test_an_evaluator_without_patience_ends_with_the_error_and_the_training_goes_on(self):
        self.inject({"kind": "deny", "method": "HEAD", "contains": "model.safetensors", "times": 1000})
        said = self.train("run", "--evaluator", "1", "--ranks", "2", "--set", "checkpoint.patience=0")
        self.assertNotIn("the evaluator waits", said)
        self.assertIn("403 AccessDenied", said)
        self.assertEqual(steps_of(self.prefix)[-1], 12)


def main():
    global PROGRAM
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    SERVER["endpoint"] = s3_server.start()
    unittest.main()


if __name__ == "__main__":
    main()
