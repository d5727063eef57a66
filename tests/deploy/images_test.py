#!/usr/bin/env python3
"""The images of deploy/, as far as they can be checked without a builder.

  images_test.py TREE BUILD

Every file, target, stage and package that Dockerfile and Apptainer definition name is there; the packages are those
whose libraries the program loads; and what `deploy/image/collect` puts together trains without LibTorch's own folder
and without Python. A coordinator ends when its container is stopped. Needs root for the last two.
"""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest

TREE, BUILD = pathlib.Path(sys.argv.pop(1)), pathlib.Path(sys.argv.pop(1))
WHOLE = BUILD / "lib" / "trireme" / "trireme"   # with LibTorch (apps/)
DOCKERFILE = (TREE / "deploy" / "Dockerfile").read_text()
APPTAINER = (TREE / "deploy" / "trireme.def").read_text()
PREFIX = "/opt/trireme"


def output(*command, **more):
    return subprocess.run(command, text=True, check=True, stdout=subprocess.PIPE, **more).stdout


def wanted_packages():
    lines = (TREE / "deploy" / "image" / "packages.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def instructions(text):
    """The instructions of a Dockerfile: (word, rest)."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.M))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def stages_of_definition(text):
    """The stages of an Apptainer definition: (header fields, {section: lines})."""
    stages = []
    for line in re.sub(r"^#.*\n", "", text, flags=re.M).splitlines():
        if line.startswith("Bootstrap:"):
            stages.append(({}, {}))
            section = None
        if line.startswith("%"):
            section = line[1:].strip()
            stages[-1][1][section] = []
        elif line.strip() and section is None:
            name, value = line.split(":", 1)
            stages[-1][0][name] = value.strip()
        elif line.strip():
            stages[-1][1][section].append(line.strip())
    return stages


def packages_with_dependencies(names):
    """Those and what they depend on, by the records of installed packages."""
    records = output("dpkg-query", "-W", "-f=${Package}\t${Depends}, ${Pre-Depends}\n").splitlines()
    depends = dict(record.split("\t") for record in records)
    found, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        words = [one.split("(")[0].strip().split(":")[0] for one in re.split(r"[,|]", depends[name])]
        todo += [word for word in words if word in depends]
    return found


class Images(unittest.TestCase):
    def check_shell(self, text):
        """Commands of the tree and targets of make that a script uses."""
        self.assertEqual(subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode, 0, text)
        for path in re.findall(r"(?:^|[ (])(deploy/\S+)", text):
            self.assertTrue(os.access(TREE / path, os.X_OK), f"{path} is no program")
        targets = re.findall(r"^(\w+):", (TREE / "Makefile").read_text(), flags=re.M)
        for target in re.findall(r"\bmake (\w+)", text.replace("make python3", "")):
            self.assertIn(target, targets)
        for prefix in re.findall(r"(?:PREFIX=|collect )(\S+)", text):
            self.assertEqual(prefix, PREFIX)

    def test_the_dockerfile_names_what_is_there(self):
        stages, path = {}, ""
        for word, rest in instructions(DOCKERFILE):
            words = rest.split()
            if word == "FROM":
                self.assertRegex(words[0], r"^debian:12(-slim)?$")
                stages[words[2] if len(words) == 3 else "last"] = words[0]
            elif word == "COPY" and words[0].startswith("--from="):
                self.assertIn(words[0].removeprefix("--from="), stages)
                self.assertEqual(words[1:], [PREFIX, PREFIX])
            elif word == "COPY":
                self.assertTrue((TREE / words[0]).exists(), words[0])
            elif word == "RUN":
                self.check_shell(rest)
            elif word == "ENV":
                path = rest
            else:
                self.assertIn(word, ("WORKDIR", "CMD"))
        self.assertEqual(path, f"PATH={PREFIX}/bin:$PATH")
        self.assertEqual(list(stages), ["build", "last"])
        ignored = (TREE / "deploy" / "Dockerfile.dockerignore").read_text().split()
        self.assertTrue({"build", ".venv", ".git"} <= set(ignored))

    def test_the_apptainer_definition_makes_the_same(self):
        build, last = stages_of_definition(APPTAINER)
        bases = [rest.split()[0] for word, rest in instructions(DOCKERFILE) if word == "FROM"]
        self.assertEqual([stage[0]["From"] for stage in (build, last)], bases)
        for _, sections in (build, last):
            for name, lines in sections.items():
                if name not in ("environment",) and not name.startswith("files"):
                    self.check_shell("\n".join(lines))
        self.assertEqual(build[1]["files"], [". /src"])
        source, target = last[1]["files"][0].split()
        self.assertTrue((TREE / source).exists(), source)
        self.assertFalse(target.startswith(("/tmp/", "/var/tmp/")), "%post sees these folders of the host instead")
        self.assertIn(target, "\n".join(last[1]["post"]))
        self.assertEqual(last[1][f"files from {build[0]['Stage']}"], [f"{PREFIX} {PREFIX}"])
        self.assertIn(f"export PATH={PREFIX}/bin:$PATH", last[1]["environment"])

    def test_the_packages_are_those_that_the_program_loads(self):
        programs = [BUILD / "bin" / "trireme", WHOLE, *BUILD.glob("lib/trireme/libtrireme_mpi_openmpi.so"),
                    *BUILD.glob("lib/libtrireme_mpi_openmpi.so")]
        owners = set()
        for program in programs:
            for library in re.findall(r"=> (/\S+) ", output("ldd", program)):
                if "/torch/lib/" in library:
                    continue
                # The path may go through a link that dpkg does not know, such as /lib.
                paths = {library, os.path.realpath(library), library.replace("/lib/", "/usr/lib/", 1)}
                found = subprocess.run(["dpkg", "-S", *paths], text=True, check=False, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL).stdout
                self.assertTrue(found, f"{library} belongs to no package")
                owners.add(found.split(":")[0])
        there = packages_with_dependencies(wanted_packages())
        self.assertLessEqual(owners, there, "libraries of packages that the image has not")
        self.assertFalse([name for name in there if name.startswith("python")], "Python in the image")

    def test_what_is_collected_trains_by_itself(self):
        with tempfile.TemporaryDirectory(prefix="trireme-image-") as name:
            folder = pathlib.Path(name)
            prefix = folder / "trireme"
            output("cmake", "--install", str(BUILD), "--prefix", str(prefix), "--component", "command")
            output(str(TREE / "deploy" / "image" / "collect"), str(prefix))
            torch = re.search(r"=> (/\S+)/libtorch_cpu.so", output("ldd", WHOLE))[1]
            (folder / "data.txt").write_text("".join(f"line {i * 7919 % 1000} of it\n" for i in range(2000)))
            (folder / "tiny.toml").write_text('[data]\npath = "data.txt"\n[model]\nlayers = 1\nheads = 2\nwidth = 32\n'
                                              "block = 16\n[train]\nsteps = 3\nvalidate_sequences = 8\n")
            script = (f"mount -t tmpfs none {torch} && ls {torch}/* 2>/dev/null; cd {folder} && "
                      f"PATH={prefix}/bin:/bin trireme train tiny.toml --ranks 2 --out run")
            done = subprocess.run(["unshare", "-m", "sh", "-c", script], text=True, check=False,
                                  env={"HOME": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("step 3 of 3", done.stdout)

    def test_a_coordinator_ends_as_process_1(self):
        """With a store SIGTERM ends it at once, also as the first process of a container, for which the kernel drops
        signals that have no handler."""
        with tempfile.TemporaryDirectory(prefix="trireme-container-") as name:
            secret = pathlib.Path(name, "job")
            secret.write_text("a secret of this job alone")
            secret.chmod(0o400)
            address = f"127.0.0.1:{random.randrange(15000, 30000)}"
            command = ["unshare", "--pid", "--fork", "--kill-child", str(BUILD / "bin" / "trireme"), "coordinator",
                       "--elastic", "1:2", "--listen", address, "--store", name]
            with subprocess.Popen(command, text=True, stdout=subprocess.PIPE,
                                  env=dict(os.environ, TRIREME_JOB_SECRET_FILE=str(secret))) as container:
                try:
                    self.assertIn("waits for 1 to 2 processes", container.stdout.readline())
                    first = pathlib.Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text()
                    os.kill(int(first), signal.SIGTERM)
                    self.assertEqual(container.wait(timeout=60), 128 + signal.SIGTERM)
                finally:
                    container.kill()

    def test_a_rank_that_waits_ends_as_process_1(self):
        """No handler of stop signals is there yet."""
        with tempfile.TemporaryDirectory(prefix="trireme-container-") as name:
            pathlib.Path(name, "data.txt").write_text("some text\n" * 200)
            pathlib.Path(name, "tiny.toml").write_text('[data]\npath = "data.txt"\n')
            command = ["unshare", "--pid", "--fork", "--kill-child", str(BUILD / "bin" / "trireme"), "train",
                       "tiny.toml", "--out", "run"]
            place = dict(RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
            with subprocess.Popen(command, text=True, cwd=name, stderr=subprocess.PIPE,
                                  env=dict(os.environ, **place)) as container:
                try:
                    self.assertIn("rank 1 waits for rank 0", container.stderr.readline())
                    first = pathlib.Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text()
                    os.kill(int(first), signal.SIGTERM)
                    self.assertEqual(container.wait(timeout=60), 128 + signal.SIGTERM)
                finally:
                    container.kill()


if __name__ == "__main__":
    unittest.main()
