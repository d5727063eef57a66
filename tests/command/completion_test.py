#!/usr/bin/env python3
"""`trireme completion`: its bash script in a real bash, the others by what reads them.

  completion_test.py TRIREME WITH_LIBTORCH BUILD bash=PATH [zsh=PATH] [fish=PATH] [mandoc=PATH]
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TRIREME, WITH_LIBTORCH, BUILD = sys.argv[1], sys.argv[2] == "ON", sys.argv[3]
TOOLS = dict(tool.split("=", 1) for tool in sys.argv[4:])


def completion(kind):
    return subprocess.run([TRIREME, "completion", kind], capture_output=True, text=True, check=True,
                          timeout=60).stdout


def run(tool, *arguments, **more):
    done = subprocess.run([TOOLS[tool], *arguments], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=60, **more)
    return done.returncode, done.stdout, done.stderr


class Bash(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.script = os.path.join(cls.folder.name, "trireme")
        pathlib.Path(cls.script).write_text(completion("bash"), encoding="utf-8")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def candidates(self, *words):
        """What Tab offers behind these words; the last is the one that is being typed."""
        program = ('source "$1"; shift; [[ $(complete -p trireme) == *_trireme* ]] || exit 3; '
                   'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trireme; '
                   'printf "%s\\n" "${COMPREPLY[@]}"')
        code, out, error = run("bash", "--norc", "--noprofile", "-c", program, "-", self.script,
                               "trireme", *words)
        self.assertEqual((code, error), (0, ""))
        return out.split()

    def test_commands(self):
        for name in ("bench", "launch", "show", "verify", "compare", "completion"):
            self.assertIn(name, self.candidates(""))
        self.assertEqual(self.candidates("ver"), ["verify"])
        self.assertNotIn("tokenize", self.candidates(""))
        with_torch = ["server"] if "train" in self.candidates("") else []
        self.assertEqual(sorted(self.candidates("bench", "")), ["comm", "scale", *with_torch])
        self.assertIn("schedule", self.candidates("show", ""))

    def test_options(self):
        self.assertEqual(sorted(self.candidates("launch", "--lo")), ["--log-dir"])
        self.assertIn("--ranks", self.candidates("bench", "comm", "--"))
        self.assertIn("--json", self.candidates("compare", "runs/a", "--j"))

    def test_values(self):
        self.assertEqual(self.candidates("launch", "--bind", ""), ["core", "numa", "none"])
        self.assertEqual(self.candidates("launch", "--bind", "=", "nu"), ["numa"])
        self.assertIn("all-reduce", self.candidates("verify", "all"))
        self.assertIn("ring", self.candidates("show", "all-reduce", ""))
        self.assertEqual(self.candidates("show", "schedule", "zb-h"), ["zb-h1", "zb-h2"])
        self.assertEqual(self.candidates("launch", "-n", ""), [])
        # The value of an option is no command and no argument.
        self.assertIn("all-reduce", self.candidates("verify", "--ranks", "4", "all-r"))
        self.assertIn("--root", self.candidates("show", "--svg", "schedule", "--r"))

    def test_another_programs_arguments_are_not_its_own(self):
        self.assertEqual(self.candidates("launch", "-n", "2", "--", "bench", "--"), [])

    def test_training(self):
        if not WITH_LIBTORCH:
            self.assertNotIn("train", self.candidates(""))
            return
        self.assertEqual(self.candidates("train", "a.toml", "--set", "train.learning"),
                         ["train.learning_rate="])
        self.assertEqual(self.candidates("train", "--set", "train.steps", "=", "3", "--resum"),
                         ["--resume"])
        self.assertEqual(self.candidates("plan", "--transport", "m"), ["mixed", "mpi"])


class Others(unittest.TestCase):
    def written(self, kind):
        with tempfile.NamedTemporaryFile("w", suffix="." + kind, delete=False) as file:
            file.write(completion(kind))
        self.addCleanup(os.unlink, file.name)
        return file.name

    def test_every_shell_knows_every_command(self):
        for kind in ("zsh", "fish", "man"):
            text = completion(kind)
            for name in ("launch", "verify", "compare"):
                self.assertIn(name, text)
            self.assertIn("log", text)

    def test_the_man_page_has_its_parts(self):
        page = completion("man")
        for part in (".TH TRIREME 1", ".SH NAME", ".SH SYNOPSIS", ".SH COMMANDS", ".SH EXIT STATUS",
                     "trireme bench comm", "\\fB\\-\\-ranks\\fR"):
            self.assertIn(part, page)

    def checked(self, tool, *arguments):
        self.assertEqual(run(tool, *arguments), (0, "", ""))


class Installed(unittest.TestCase):
    def test_files_lie_where_shells_look(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["cmake", "--install", BUILD, "--prefix", folder, "--component", "shell"],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            for kind, path in (("bash", "bash-completion/completions/trireme"),
                               ("zsh", "zsh/site-functions/_trireme"),
                               ("fish", "fish/vendor_completions.d/trireme.fish"),
                               ("man", "man/man1/trireme.1")):
                text = pathlib.Path(folder, "share", path).read_text(encoding="utf-8")
                self.assertEqual(text, completion(kind))


def add(tool, name, check):
    """A test that is there where the tool is."""
    if tool in TOOLS:
        setattr(Others, name, check)


def zsh_takes_its_script(self):
    self.checked("zsh", "-n", self.written("zsh"))
    self.checked("zsh", "-f", "-c", 'autoload -Uz compinit; compinit -u -D; source "$1"; '
                 '[[ $_comps[trireme] == _trireme ]] && (( $+functions[_trireme_launch] ))', "-",
                 self.written("zsh"))


def fish_takes_its_script(self):
    self.checked("fish", "--no-execute", self.written("fish"))


def mandoc_has_no_complaint(self):
    self.checked("mandoc", "-T", "lint", "-W", "warning", self.written("man"))


add("zsh", "test_zsh_takes_its_script", zsh_takes_its_script)
add("fish", "test_fish_takes_its_script", fish_takes_its_script)
add("mandoc", "test_mandoc_has_no_complaint", mandoc_has_no_complaint)
unittest.main(argv=sys.argv[:1])
