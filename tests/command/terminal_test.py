#!/usr/bin/env python3
"""What `trireme train` shows on a terminal of the user's own, on one that a launcher reads, in a pipe.

  terminal_test.py TRIREME
"""
import fcntl
import json
import os
import pathlib
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tiny_training  # noqa: E402

TRIREME = sys.argv[1]
TEXT = "".join(f"line {i * 7919 % 1000} of it\n" for i in range(2000))
CONFIG = """[data]
path = "data.txt"
[model]
layers = 1
heads = 2
width = 16
block = 16
[batch]
global = 4
micro = 2
[train]
steps = 30
validate_every = 15
validate_sequences = 4
sample_bytes = 0
"""


class Terminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.cache.cleanup)

    def setUp(self):
        # Only the first training measures this machine.
        os.environ["XDG_CACHE_HOME"] = tiny_training.believed(self.cache.name)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        pathlib.Path(self.folder.name, "data.txt").write_text(TEXT, encoding="utf-8")
        pathlib.Path(self.folder.name, "tiny.toml").write_text(CONFIG, encoding="utf-8")

    def shown(self, own=True, **variables):
        """What a training writes to a terminal of 120 columns. `own`: which controls it."""
        reader, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))

        def begin():
            os.setsid()
            if own:
                fcntl.ioctl(end, termios.TIOCSCTTY, 0)

        environment = {**os.environ, "TERM": "xterm", **variables}
        if "NO_COLOR" not in variables:
            environment.pop("NO_COLOR", None)
        child = subprocess.Popen([TRIREME, "train", "tiny.toml", "--ranks", "2"], env=environment,
                                 cwd=self.folder.name, stdin=end, stdout=end, stderr=end,
                                 preexec_fn=begin)
        os.close(end)
        written = b""
        while True:
            try:
                some = os.read(reader, 65536)
            except OSError:   # its last writer is gone
                break
            if not some:
                break
            written += some
        os.close(reader)
        text = written.decode().replace("\r\n", "\n")
        self.assertEqual(child.wait(60), 0, text)
        return text

    def check_plain(self, text):
        self.assertNotIn("\r", text)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("━", text)
        self.assertIn("\nstep 30 of 30 · loss ", text)

    def test_the_users_own_has_a_live_line(self):
        text = self.shown()
        live = text.split("\r")
        self.assertGreater(len(live), 3)
        self.assertTrue(any(part.startswith("\x1b[32m━") for part in live), text)
        self.assertIn("step 30 of 30", live[-1])
        self.assertNotIn(" 0 s left", text)
        self.assertNotIn("0.00 s left", text)

    def test_a_validation_has_one_line(self):
        for text in (self.shown(), self.shown(TERM="dumb")):
            for step in ("0", "15", "30"):
                self.assertEqual(text.count(f"validation after step {step}: "), 1, text)
            self.assertNotIn("· validation", text)

    def test_color_can_be_refused(self):
        text = self.shown(NO_COLOR="1")
        self.assertIn("\r━", text)
        for code in ("\x1b[1m", "\x1b[2m", "\x1b[32m"):
            self.assertNotIn(code, text)

    def test_a_dumb_terminal_gets_lines(self):
        self.check_plain(self.shown(TERM="dumb"))

    def test_a_terminal_that_a_launcher_reads_gets_lines(self):
        self.check_plain(self.shown(own=False))

    def test_what_comes_next_suits_the_text(self):
        done = subprocess.run([TRIREME, "train", "tiny.toml"], cwd=self.folder.name,
                              capture_output=True, text=True, check=True, timeout=100)
        self.check_plain(done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1],
                         f'next: {TRIREME} generate runs/tiny --prompt "line"')

    def test_a_job_tells_its_utilization(self):
        done = subprocess.run([TRIREME, "train", "tiny.toml", "--json"], cwd=self.folder.name,
                              capture_output=True, text=True, check=True, timeout=100)
        shares = [event["model_flops_utilization"] for event in map(json.loads, done.stdout.splitlines())
                  if event["event"] == "step"]
        self.assertEqual(len(shares), 30)
        self.assertGreater(min(shares), 0)


unittest.main(argv=sys.argv[:1])
