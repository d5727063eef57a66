#!/usr/bin/env python3
"""The host of a standing coordinator vanishes, without a reset of its connections; another host takes its address.

  standing_hosts_test.py TRIREME
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import hosts_case
from hosts_case import wait_for

PORT = 29400


class StandingHosts(hosts_case.HostsCase):
    def on(self, name, *arguments, **variables):
        """A command of a host."""
        secret = self.folder / "secret"
        if not secret.exists():
            secret.write_text("a secret of this job alone")
            secret.chmod(0o600)
        log = open(self.folder / f"{name}-{len(self.started)}.log", "w+")
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.hosts.namespace(name), self.TRIREME, *arguments], cwd=self.folder,
            env=dict(os.environ, XDG_CACHE_HOME=hosts_case.tiny_training.cache(self.TRIREME), TRIREME_JOB_SECRET_FILE=str(secret), **variables),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(log.close)
        process.said = lambda: pathlib.Path(log.name).read_text()
        self.started.append(process)
        return process

    def await_text(self, process, text, seconds=60):
        self.assertTrue(wait_for(lambda: text in process.said() or process.poll() is not None, seconds, every=0.05))
        self.assertIn(text, process.said())

    def begin(self, run):
        """A coordinator on node08, and two ranks on node07 that train until they are stopped."""
        self.run_name, store = run, f"store-{run}"
        address = f"{self.hosts.address('node08')}:{PORT}"
        (self.folder / store).mkdir()
        coordinator = ("coordinator", "--elastic", "1:2", "--listen", address, "--store", store, "--silence", "4")
        train = ("train", "tiny.toml", "--out", run, "--resume", "auto", "--set", "train.steps=1000000")
        first = self.on("node08", *coordinator)
        ranks = [self.on("node07", *train, TRIREME_COORDINATOR=address, TRIREME_ELASTIC="1", TRIREME_SIZE="2",
                         TRIREME_RANK=str(rank)) for rank in range(2)]
        self.await_text(first, "the job begins with 2 ranks")
        self.await_text(ranks[0], "step ")
        return address, coordinator, first, ranks

    def expect_stopped(self, ranks, coordinator):
        """A signal to a rank stops all, with the weights of a run that nobody disturbed."""
        ranks[1].send_signal(signal.SIGTERM)
        codes = [process.wait(60) for process in (*ranks, coordinator)]
        self.assertEqual(codes, [143] * 3, "\n".join(one.said() for one in self.started))
        self.assertNotIn("the job goes on", coordinator.said(), "a rank was lost")
        done = [event["step"] for event in map(json.loads, (self.folder / self.run_name / "events.jsonl").read_text().splitlines())
                if event["event"] == "step"][-1]
        self.assertEqual(self.hash_of(self.run_name), self.train(f"{self.run_name}-alone", "--ranks", "1", steps=done)[0])

    def test_a_coordinator_whose_host_vanishes(self):
        """The coordinator is cut off, but reaches its store, where it must write nobody off."""
        address, coordinator, first, ranks = self.begin("vanishes")
        self.addCleanup(self.hosts.mend, "node08")
        self.hosts.cut("node08")
        self.await_text(first, "hears no process any more")
        time.sleep(2)
        first.kill()
        first.wait()
        self.await_text(ranks[0], f"the coordinator at {address} is gone")
        moved = [f"{self.hosts.address('node08')}/32", "dev", "lo"]
        move = ["ip", "-n", self.hosts.namespace("node07"), "addr"]
        subprocess.run([*move, "add", *moved], check=True)
        self.addCleanup(subprocess.run, [*move, "del", *moved], check=True)
        second = self.on("node07", *coordinator)
        self.await_text(ranks[0], "the coordinator is back")
        time.sleep(6)   # longer than it waits for those that have not come back
        self.expect_stopped(ranks, second)

    def test_a_coordinator_that_is_cut_off_for_a_while(self):
        address, _, coordinator, ranks = self.begin("comes-back")
        self.addCleanup(self.hosts.mend, "node08")
        self.hosts.cut("node08")
        self.await_text(coordinator, "hears no process any more")
        self.await_text(ranks[0], f"the coordinator at {address} is gone")
        self.hosts.mend("node08")
        self.await_text(ranks[0], "the coordinator is back")
        time.sleep(6)   # longer than it waits for those that have not come back
        self.expect_stopped(ranks, coordinator)


if __name__ == "__main__":
    hosts_case.HostsCase.TRIREME = sys.argv.pop(1)
    unittest.main()
