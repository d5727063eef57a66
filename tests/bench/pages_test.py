#!/usr/bin/env python3
"""The pages' commands that run bench/: each has only options that its program takes."""
import contextlib
import importlib
import io
import pathlib
import re
import shlex
import sys
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
# The program and its words, in a line of code or between backticks.
COMMAND = re.compile(r"bench/(run_\w+)\.py((?: +[\w./,@+-]+(?=[ `\n]))+)")


def commands():
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines(keepends=True):
            code = [line] if line.startswith("    ") else [f"{one}`" for one in line.split("`")[1::2]]
            for text in code:
                for found in COMMAND.finditer(text):
                    yield page.relative_to(ROOT), *found.groups()


class Pages(unittest.TestCase):
    def test_options_exist(self):
        found = list(commands())
        self.assertGreater(len(found), 20)
        for page, program, words in found:
            with self.subTest(f"{page}: {program}{words}"), contextlib.redirect_stderr(io.StringIO()) as errors, \
                    mock.patch.object(sys, "argv", [program, *shlex.split(words)]):
                try:
                    importlib.import_module(program).parse()
                except SystemExit:
                    self.fail(errors.getvalue())


if __name__ == "__main__":
    unittest.main()
