"""What tests of jobs on two hosts share: network namespaces with an sshd each, and commands that find them."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import ssh_hosts

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tiny_training  # noqa: E402

BOTH = "node07:2,node08:2"


def wait_for(condition, seconds=30, every=0.01):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True


def text_of(number, name):
    try:
        return pathlib.Path(f"/proc/{number}/{name}").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


class HostsCase(unittest.TestCase):
    TRIREME = ""   # the program; the test's main sets it

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="trireme-hosts-")
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.hosts = ssh_hosts.SshHosts(cls.folder).__enter__()
        cls.hidden = cls.hosts.folder / "hidden"
        tiny_training.write(cls.folder, more='schedule = "constant"\n')

    @classmethod
    def tearDownClass(cls):
        cls.hosts.__exit__()
        cls.temporary.cleanup()

    def setUp(self):
        self.started = []

    def tearDown(self):
        for process in self.started:
            process.kill()
            process.communicate()
        self.assertTrue(self.nothing_runs(), self.processes())

    def processes(self):
        return {name: [text_of(one, "cmdline") for one in self.hosts.processes(name)]
                for name in self.hosts.NAMES}

    def wait_for_sleepers(self, count):
        """Until so many processes `sleep` run on each host."""
        self.assertTrue(wait_for(lambda: all(sum(line.startswith("sleep ") for line in some) == count
                                             for some in self.processes().values())), self.processes())

    def nothing_runs(self):
        return wait_for(lambda: not any(self.processes().values()), 10)

    def start(self, *arguments, cwd=None, **variables):
        environment = dict(self.hosts.environment(), XDG_CACHE_HOME=tiny_training.cache(self.TRIREME), **variables)
        process = subprocess.Popen([self.TRIREME, *arguments], cwd=cwd or self.folder, env=environment, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.started.append(process)
        return process

    def run_it(self, *arguments, seconds=90, **more):
        process = self.start(*arguments, **more)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"{arguments} did not end: {process.communicate()}")
        return process.returncode, out, err

    def launch(self, hosts, script, *options, **more):
        return self.run_it("launch", "-H", hosts, *options, "--", "sh", "-c", script, **more)

    def train(self, run, *arguments, steps=12):
        code, out, err = self.run_it("train", "tiny.toml", "--out", run, "--set", f"train.steps={steps}", *arguments)
        self.assertEqual(code, 0, out + err)
        return self.hash_of(run), out + err

    def hash_of(self, run):
        code, out, err = self.run_it("inspect", run, "--hash")
        self.assertEqual(code, 0, err)
        return out.strip()

    def agent_on(self, name):
        """The launcher's process on a host."""
        agents = [one for one in self.hosts.processes(name) if "launch-host" in text_of(one, "cmdline")
                  and text_of(one, "comm").strip() != "trireme-guard"]
        self.assertEqual(len(agents), 1, self.processes())
        return agents[0]
