#!/usr/bin/env python3
"""Elastic trainings on two hosts, of which one is lost and comes back.

  elastic_hosts_test.py TRIREME
"""
import json
import os
import signal
import sys
import unittest

import hosts_case
from hosts_case import BOTH, wait_for


class ElasticHosts(hosts_case.HostsCase):
    def events(self, run, kind):
        found = []
        try:
            with open(self.folder / run / "events.jsonl") as lines:
                for line in lines:
                    if line.endswith("\n") and f'"event":"{kind}"' in line:
                        found.append(json.loads(line))
        except FileNotFoundError:
            pass
        return found

    def start_elastic(self, run, *more):
        """Under zero1, each rank has a part of the state alone; no checkpoint is written before the end. The network is
        slow: ranks wait for it most of the time, and a run of one rank does as many steps in a few seconds."""
        values = ("train.steps=100000", "parallel.sync=zero1", "checkpoint.memory=1", "checkpoint.every=0",
                  "comm.transport=tcp", "comm.rate=2000000")
        return self.start("train", "tiny.toml", "--out", run, "-H", BOTH, "--elastic", "2:4",
                          *(word for value in values for word in ("--set", value)), *more)

    def await_steps(self, process, run, steps):
        self.assertTrue(wait_for(lambda: len(self.events(run, "step")) >= steps or process.poll() is not None, 60, every=0.1))
        self.assertIsNone(process.poll(), process.communicate() if process.poll() is not None else "")

    def await_ranks(self, process, run, ranks):
        """Until the job has gone on with so many ranks at last."""
        def there():
            changes = self.events(run, "regrouped")
            return process.poll() is not None or bool(changes) and changes[-1]["ranks"] == ranks
        if not wait_for(there, 150, every=0.2):   # the file grows fast
            process.kill()
            self.fail(f"{self.events(run, 'regrouped')}\n{process.communicate()}\n{self.events(run, 'step')[-1]}")

    def stop(self, process, run):
        """Asks the job to stop. Its weights are those of an undisturbed run of as many steps."""
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        self.hosts.mend("node08")
        self.assertEqual(process.returncode, 143, out + err)
        self.assertIn("checkpoint written", out)
        self.assertNotIn("goes back", out)
        done = [event["step"] for event in self.events(run, "step")]
        self.assertEqual(done, list(range(1, done[-1] + 1)), "each step once in the events")
        repeated = [event["steps_repeated"] for event in self.events(run, "regrouped")]
        self.assertLessEqual(max(repeated), 1, err)
        alone, _ = self.train(run + "-alone", "--ranks", "1", steps=done[-1])
        self.assertEqual(self.hash_of(run), alone, err)
        return err

    def test_a_host_whose_launcher_dies_is_lost_with_its_ranks_and_used_again(self):
        process = self.start_elastic("lost")
        self.await_steps(process, "lost", 20)
        os.kill(self.agent_on("node08"), signal.SIGKILL)
        self.await_ranks(process, "lost", 4)
        err = self.stop(process, "lost")
        # The copies of both ranks were on the other host.
        for rank in (2, 3):
            self.assertIn(f"rank {rank} is lost with host node08", err)
            self.assertIn(f"process {rank} has come", err)
        self.assertEqual(self.events("lost", "regrouped")[0]["ranks"], 2, err)

    def test_a_host_without_a_network_is_given_up_and_comes_back(self):
        process = self.start_elastic("away", "--host-timeout", "2", "--set", "timeout=20")
        self.await_steps(process, "away", 20)
        self.hosts.cut("node08")
        self.await_ranks(process, "away", 2)
        self.hosts.mend("node08")
        self.await_ranks(process, "away", 4)
        self.hosts.cut("node08")
        self.await_ranks(process, "away", 2)
        self.assertIn("is lost with host node08", self.stop(process, "away"))


if __name__ == "__main__":
    hosts_case.HostsCase.TRIREME = sys.argv.pop(1)
    unittest.main()
