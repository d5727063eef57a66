#!/usr/bin/env python3
"""The installed command and the installed examples' programs, started from / with an empty environment.

  installed_test.py BUILD STAGE WITH_LIBTORCH TORCH_FOLDER
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, STAGE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
LIBTORCH, TORCH = sys.argv[3] == "ON", pathlib.Path(sys.argv[4])
TRIREME = STAGE / "bin" / "trireme"
SHARE = STAGE / "share" / "trireme"


def run(*command, environment=None):
    return subprocess.run([str(word) for word in command], cwd="/", env=environment or {}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, timeout=120)


class Case(unittest.TestCase):
    def succeed(self, *command):
        done = run(*command)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}\n{done.stderr}")
        return done.stdout


class Installed(Case):
    def test_the_command_starts_anywhere(self):
        self.assertRegex(self.succeed(TRIREME, "--version"), r"\d+\.\d+\.\d+")
        if LIBTORCH:
            self.assertIn("cores", self.succeed(TRIREME, "doctor"))
        else:
            self.assertIn("round 1 of", self.succeed(TRIREME, "show", "all-reduce", "ring"))

    def test_the_examples_run_alone(self):
        printed = {"01_all_reduce/all_reduce": "rank 0 of 1: sum 1 10", "from_mpi/from_mpi": "rank 0 of 1"}
        if LIBTORCH:
            printed |= {"02_data_parallel/02_main": "99 % right", "04_zero/zero": "parameters"}
        for program, words in printed.items():
            with self.subTest(program):
                self.assertIn(words, self.succeed(BUILD / "examples" / program))

    def test_the_examples_run_under_the_installed_launcher(self):
        self.assertIn("rank 1 of 2: sum 3 30",
                      self.succeed(TRIREME, "launch", "-n", "2", "--", BUILD / "examples/01_all_reduce/all_reduce"))

    def test_sources_of_the_examples_and_the_licence_are_there(self):
        self.assertTrue((SHARE / "examples" / "01_all_reduce" / "main.cc").is_file())
        self.assertEqual([path.name for path in (STAGE / "share" / "doc").rglob("LICENSE")], ["LICENSE"])

    def test_no_library_of_a_test_is_installed(self):
        libraries = [path.name for path in STAGE.rglob("libtrireme_*.a")]
        self.assertIn("libtrireme_comm.a", libraries)
        self.assertEqual([name for name in libraries if "testing" in name], [])

    def test_no_header_of_a_test_is_installed(self):
        include = STAGE / "include"
        headers = list((include / "trireme").rglob("*.h"))
        self.assertGreater(len(headers), 10)
        for header in headers:
            text = header.read_text()
            self.assertNotRegex(text, r"#include <(gtest|gmock)/", header)
            self.assertNotRegex(header.name, r"_test\.h$|^faulty_")
            for named in re.findall(r'#include "(trireme/[^"]+(?<!\.pb)\.h)"', text):
                self.assertTrue((include / named).is_file(), f"{header} includes {named}, which is not installed")



class InstalledWithLibTorch(Case):
    def test_it_trains(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "text")
            text.write_bytes(b"the same weights on any number of ranks. " * 500)
            out = pathlib.Path(folder, "run")
            self.succeed(TRIREME, "train", SHARE / "configs" / "gpt-nano.toml", "--ranks", "2", "--data", text,
                         "--set", "train.steps=3", "--out", out)
            self.assertRegex(self.succeed(TRIREME, "inspect", out, "--hash"), r"[0-9a-f]{64}")

    def test_a_prefix_that_holds_libtorch_may_be_moved(self):
        # Installed with LibTorch's own folder inside the prefix, then used from another place.
        prefix = TORCH.parent.parent
        with tempfile.TemporaryDirectory() as folder:
            installed = subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(prefix), "--component",
                                        "command"], env=dict(os.environ, DESTDIR=folder), capture_output=True,
                                       text=True, check=False)
            self.assertEqual(installed.returncode, 0, installed.stderr)
            moved = pathlib.Path(folder, "moved")
            shutil.move(folder + str(prefix), moved)
            link = moved / TORCH.relative_to(prefix)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(TORCH)
            section = run("/usr/bin/readelf", "-d", moved / "lib" / "trireme" / "trireme").stdout
            self.assertIn("$ORIGIN/../../" + str(TORCH.relative_to(prefix)), section)
            self.assertNotIn(str(TORCH), section)
            self.assertRegex(self.succeed(moved / "bin" / "trireme", "--version"), r"\d+\.\d+\.\d+")


if not LIBTORCH:
    del InstalledWithLibTorch   # this build has no such command

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
