#!/usr/bin/env python3
"""`trireme launch -H` and `trireme train -H` on two hosts: network namespaces with an sshd each.

  several_hosts_test.py TRIREME
"""
import os
import signal
import subprocess
import sys
import time
import unittest

import hosts_case
from hosts_case import BOTH, text_of

SECRET = "a secret of this test alone"


class SeveralHosts(hosts_case.HostsCase):
    def test_every_host_runs_its_ranks_in_the_same_folder(self):
        code, out, err = self.launch(
            BOTH, "echo $TRIREME_RANK of $TRIREME_SIZE, $TRIREME_LOCAL_RANK of $TRIREME_LOCAL_SIZE on $(hostname), "
                  "$TRIREME_HOST in $(pwd); echo to stderr >&2")
        self.assertEqual(code, 0, err)
        self.assertEqual(sorted(out.splitlines()), [
            f"[{rank}] {rank} of 4, {rank % 2} of 2 on {host}, {host} in {self.folder}"
            for rank, host in enumerate(["node07", "node07", "node08", "node08"])])
        self.assertIn("trireme: node07: ranks 0, 1; node08: ranks 2, 3\n", err)
        for rank in range(4):
            self.assertIn(f"[{rank}] to stderr\n", err)

    def test_no_line_is_lost_at_the_end(self):
        for _ in range(3):
            code, out, err = self.launch(BOTH, "seq 1 5000")
            self.assertEqual(code, 0, err)
            self.assertEqual(sorted(out.splitlines()),
                             sorted(f"[{rank}] {number}" for rank in range(4) for number in range(1, 5001)))

    def test_servers_and_the_evaluator_go_round_the_hosts(self):
        code, out, err = self.launch("node07,node08", "echo $TRIREME_ROLE $TRIREME_RANK on $(hostname)",
                                     "--servers", "3", "--evaluator", "1")
        self.assertEqual(code, 0, err)
        self.assertEqual(sorted(out.splitlines()), [
            "[0] worker 0 on node07", "[1] worker 1 on node08", "[eval] evaluator 0 on node08",
            "[ps 0] server 0 on node07", "[ps 1] server 1 on node08", "[ps 2] server 2 on node07"])
        self.assertIn("node07: rank 0, servers 0, 2; node08: rank 1, server 1, the evaluator", err)

    def test_only_variables_that_are_named_travel(self):
        script = "echo \"$MINE $OTHER $TRIREME_TIMEOUT $TRIREME_ADDRESS\""
        code, out, err = self.launch("node07", script, "-x", "MINE", MINE="mine", OTHER="other",
                                     TRIREME_TIMEOUT="20")
        self.assertEqual((code, out), (0, "[0] mine  20 \n"), err)

    def test_the_weights_are_those_of_one_host(self):
        alone, _ = self.train("alone", "--ranks", "4")
        there, text = self.train("there", "-H", BOTH)
        self.assertEqual(there, alone)
        self.assertIn("step 12 of 12", text)
        mixed, _ = self.train("mixed", "-H", "localhost,node08:3")
        self.assertEqual(mixed, alone)
        served, text = self.train("served", "-H", BOTH, "--set", "parallel.sync=server", "--set", "server.count=2")
        self.assertEqual(served, alone)
        self.assertIn("server 1", text)

    def test_the_first_failure_ends_all_and_is_named(self):
        began = time.monotonic()
        code, _, err = self.launch(BOTH, "test $TRIREME_RANK = 2 && exit 7; exec sleep 100")
        self.assertEqual(code, 7, err)
        self.assertIn("rank 2 on host node08 ended with exit code 7", err.splitlines()[-1])
        self.assertLess(time.monotonic() - began, 30)
        code, _, err = self.launch(BOTH, "test $TRIREME_RANK = 1 && kill -SEGV $$; exec sleep 100")
        self.assertEqual(code, 139, err)
        self.assertIn("rank 1 on host node07 was killed by signal 11 (SIGSEGV)", err.splitlines()[-1])

    def test_a_program_that_is_not_there_is_named_with_its_host(self):
        code, _, err = self.run_it("launch", "-H", "node08", "--", "./nothing")
        self.assertEqual(code, 2, err)
        self.assertIn("on host node08: cannot run './nothing'", err)

    def test_nothing_is_left_when_the_launcher_is_killed(self):
        # A child of a rank, in its group, must end as well.
        process = self.start("launch", "-H", BOTH, "--", "sh", "-c", "sleep 1000 & sleep 1000")
        self.wait_for_sleepers(4)
        process.kill()
        process.communicate()
        self.assertTrue(self.nothing_runs(), self.processes())
        left = subprocess.run(["pgrep", "-f", f"{self.hosts.folder}/config"], stdout=subprocess.PIPE, text=True,
                              check=False).stdout
        self.assertEqual(left, "", "ssh still runs")

    def test_a_lost_connection_ends_all(self):
        process = self.start("launch", "-H", BOTH, "--", "sleep", "1000")
        self.wait_for_sleepers(2)
        os.kill(self.agent_on("node08"), signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 160, err)
        self.assertIn("The connection to host node08 has ended", err)

    def rank_on(self, name, rank):
        return next(one for one in self.hosts.processes(name) if f" TRIREME_RANK={rank} " in f' {text_of(one, "environ")} ')

    def test_a_stop_of_the_launcher_or_of_any_rank_is_followed_by_a_checkpoint(self):
        for who, sent in (("launcher", signal.SIGTERM), ("rank", signal.SIGUSR1)):
            process = self.start("train", "tiny.toml", "--out", f"stopped-{who}", "-H", BOTH, "--set",
                                 "train.steps=100000")
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "expected time" in line:
                    break
            os.kill(process.pid if who == "launcher" else self.rank_on("node08", 3), sent)
            out, err = process.communicate(timeout=90)
            self.assertEqual(process.returncode, 143, "".join(lines) + out + err)
            self.assertIn("checkpoint written", out)
            self.assertIn(f"--ranks 4 -H {BOTH}", out)

    def test_the_secret_is_in_no_command_line_and_no_environment(self):
        secret = self.folder / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        process = self.start("launch", "-H", BOTH, "--", "sh", "-c", "wc -c < /proc/self/fd/$TRIREME_SECRET_FD; exec sleep 1000",
                             TRIREME_JOB_SECRET_FILE=str(secret))
        got = [process.stdout.readline() for _ in range(4)]
        self.assertEqual(sorted(line.split("] ")[1] for line in got), [f"{len(SECRET)}\n"] * 4)
        everybody = [one for one in os.listdir("/proc") if one.isdigit()]
        for number in everybody:
            for name in ("cmdline", "environ"):
                self.assertNotIn(SECRET, text_of(number, name))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)

    def test_a_host_that_cannot_be_reached_is_named_and_nothing_is_started(self):
        nobody = f"{self.hosts.network}.99"
        hostfile = self.folder / "hosts"
        hostfile.write_text(f"node07 slots=2\n{nobody} slots=2   # no such host\n")
        mark = self.folder / "started"
        code, _, err = self.run_it("launch", "--hostfile", "hosts", "--host-timeout", "2", "--", "touch", str(mark))
        self.assertEqual(code, 2, err)
        self.assertIn(f"host {nobody} ", err)
        self.assertIn("Nothing was started", err)
        self.assertNotIn("host node07", err)
        self.assertFalse(mark.exists())
        # Several are named at once.
        code, _, err = self.launch(f"node07,{nobody},node-oo", "true", "--host-timeout", "3")
        self.assertEqual(code, 2, err)
        self.assertIn(f"host {nobody} ", err)
        self.assertIn("host node-oo ", err)

    def test_a_host_that_does_not_answer_is_named_in_time(self):
        silent = self.folder / "silent"
        silent.write_text("#!/bin/sh\ncase \"$*\" in *node08*) exec sleep 1000;; esac\nexec ssh \"$@\"\n")
        silent.chmod(0o755)
        began = time.monotonic()
        code, _, err = self.launch(BOTH, "true", "--host-timeout", "5", TRIREME_SSH=str(silent))
        self.assertEqual(code, 2, err)
        self.assertIn("host node08 did not answer within 5 s", err)
        self.assertNotIn("host node07", err)
        self.assertLess(time.monotonic() - began, 30)

    def test_all_hosts_have_the_folder(self):
        job = self.hidden / "job"
        job.mkdir(exist_ok=True)
        code, _, err = self.launch(BOTH, "true", cwd=job)
        self.assertEqual(code, 2, err)
        self.assertIn(f"host node08 cannot enter the folder {job}: No such file or directory", err)
        code, _, err = self.run_it("train", "tiny.toml", "--out", str(job / "run"), "-H", BOTH)
        self.assertEqual(code, 2, err)
        self.assertIn(f"host node08 does not have the launcher's {job}/run/config.toml", err)

    def test_malformed_hosts_are_refused(self):
        (self.folder / "wrong").write_text("node07 slots=2\nnode08 slots=two\n")
        for arguments, words in ((("--hostfile", "wrong"), 'wrong:2: "two" is no number of slots'),
                                 (("--hostfile", "none"), "the hostfile none: No such file"),
                                 (("-H", "node07:0"), '-H node07:0: "0" is no number of slots'),
                                 (("-H", BOTH, "-n", "5"), "5 ranks, but the hosts have 4 slots"),
                                 (("-H", BOTH, "--hostfile", "wrong"), "both -H and --hostfile"),
                                 ((), "the number of ranks is not given")):
            code, _, err = self.run_it("launch", *arguments, "--", "true")
            self.assertEqual(code, 2, err)
            self.assertIn(words, err)


if __name__ == "__main__":
    hosts_case.HostsCase.TRIREME = sys.argv.pop(1)
    unittest.main()
