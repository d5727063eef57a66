#!/usr/bin/env python3
"""Sets up, configures where needed, and builds: what every make target calls.

One build at a time per tree (a lock on the Makefile, gone with the process), so two makes at once
do not disturb one another. Configures only when the build folder is new, its last configuration did
not finish, or its options changed; everything else is Ninja's own business.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

import setup

ROOT = setup.ROOT
# Variables by which a configuration finds compilers, their flags, libraries and programs of tests.
FOUND_BY = ["CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "CUDACXX",
            "CUDA_HOME", "CUDA_PATH", "NCCL_ROOT", "TRIREME_DATA", "TRIREME_PYTHON",
            "TRIREME_TENSORBOARD_PYTHON", "TRIREME_S3_PYTHON"]
# set(NAME VALUE CACHE …) and option(NAME "…" VALUE)
DEFAULT = re.compile(r'^set\((\w+ .*) CACHE |^option\((\w+ )".*" (\w+)\)', re.MULTILINE)


def cores():
    """Those that this process may use: by its affinity, and by the quota of its container."""
    count = len(os.sched_getaffinity(0))
    quota, period = limit_of_container("cpu.max", "max 1").split()
    return count if quota == "max" else max(1, min(count, -(-int(quota) // int(period))))


def limit_of_container(name, none):
    """A file of its control group (version 2), or `none`."""
    try:
        return pathlib.Path("/sys/fs/cgroup", name).read_text(encoding="utf-8")
    except OSError:
        return none


def compilers(count, memory_text, limit_text="max"):
    """How many compilers may run on `count` cores: each needs up to 2 GiB of the memory that is available, which
    `memory_text` (/proc/meminfo) tells in kB, and of the container's `limit_text` (memory.max) in bytes."""
    room = [int(available) // 2**21 for available in re.findall(r"MemAvailable: +(\d+)", memory_text)]
    room += [int(limit) // 2**31 for limit in re.findall(r"\d+", limit_text)]
    return max(1, min([count, *room]))


def configure_command(folder, torch, options):
    command = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja"]
    command += [f"-D{option}" for option in options]
    if torch:
        command.append(f"-DTorch_DIR={torch}")
    return command


def defaults():
    """The values of the tree's options. CMake keeps former ones in its cache: they need a fresh configuration."""
    files = [*ROOT.glob("CMakeLists.txt"), *sorted(ROOT.glob("cmake/*.cmake"))]
    return ["".join(found) for file in files for found in DEFAULT.findall(file.read_text(encoding="utf-8"))]


def configure(folder, torch, options):
    """Runs cmake unless the folder was configured by this very command already, where it finds the same and has the
    same defaults."""
    command = configure_command(folder, torch, options)
    version = torch / "TorchConfigVersion.cmake" if torch else None
    wanted = {"command": command, "root": os.geteuid() == 0, "defaults": defaults(),
              "libtorch": version.read_text(encoding="utf-8") if version and version.is_file() else None,
              "environment": {name: os.environ.get(name) for name in FOUND_BY}}
    stamp = folder / "trireme-configured.json"
    try:
        before = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = None
    whole = (folder / "build.ninja").is_file()
    if before == wanted and whole:
        return
    if before and whole and before.get("libtorch", wanted["libtorch"]) != wanted["libtorch"]:
        # Replaced in its folder, maybe by older files, which Ninja would not see.
        run(["ninja", "-C", str(folder), "-t", "clean"])
    stamp.unlink(missing_ok=True)
    setup.say(f"Configuring {os.path.relpath(folder, ROOT)}.")
    # Do not reuse what an older or unfinished configuration found with other options.
    again = ["--fresh"] if (folder / "CMakeCache.txt").is_file() else []
    run([*command, *again])
    stamp.write_text(json.dumps(wanted), encoding="utf-8")


def run(command):
    end_if_failed(subprocess.run(command, check=False).returncode, command)


def end_if_failed(code, command):
    if code != 0:
        setup.say(f"'{shlex.join(map(str, command))}' failed with {code}; its own words are above.")
        sys.exit(code if 0 < code < 128 else 1)


class Progress:
    """Says how far a build is and how long it still takes, once it has taken ten seconds.

    On a terminal one line is drawn again and again; elsewhere there is a line every ten per cent.
    """
    QUIET = 10

    def __init__(self, write, terminal, clock=time.monotonic):
        self.write, self.terminal, self.clock = write, terminal, clock
        self.started, self.tenth, self.drawn = clock(), 0, False

    def step(self, done, total):
        took = self.clock() - self.started
        if took < self.QUIET or done == 0:
            return
        tenth = 10 * done // total
        if not self.terminal and tenth <= self.tenth:
            return
        self.tenth = tenth
        left = took / done * (total - done)
        text = f"built {done} of {total}, about {duration(left)} left"
        self.write(f"\r{text}\x1b[K" if self.terminal else f"{text}\n")
        self.drawn = self.terminal

    def clear(self):
        """Before other output, and at the end."""
        if self.drawn:
            self.write("\r\x1b[K")
        self.drawn = False


def duration(seconds):
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"


def follow(lines, progress, write):
    """Takes Ninja's status lines for progress and passes the others on: what failed, and why."""
    for line in lines:
        status = STATUS.match(line)
        if status:
            progress.step(int(status[1]), int(status[2]))
        elif not line.startswith(("ninja: Entering", "ninja: no work")):
            progress.clear()
            write(line)
    progress.clear()


STATUS = re.compile(r"ninja (\d+)/(\d+) ")


def build(folder, targets):
    def write(text):
        sys.stdout.write(text)
        sys.stdout.flush()

    memory = pathlib.Path("/proc/meminfo").read_text(encoding="utf-8")
    count = compilers(cores(), memory, limit_of_container("memory.max", "max"))
    command = ["ninja", "-C", str(folder), f"-j{count}", *targets]
    environment = {**os.environ, "NINJA_STATUS": "ninja %f/%t ", "CLICOLOR_FORCE": "1"}
    if not sys.stdout.isatty():
        del environment["CLICOLOR_FORCE"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", env=environment) as ninja:
        follow(ninja.stdout, Progress(write, sys.stdout.isatty()), write)
    end_if_failed(ninja.returncode, command)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="Ninja's targets (default: everything)")
    parser.add_argument("--folder", default="build", help="the build folder, in the tree")
    parser.add_argument("--torch", choices=["cpu", "cuda", "none"], default="cpu",
                        help="none: only the floors without LibTorch")
    parser.add_argument("--no-packages", action="store_true", help="do not look for missing Debian packages")
    parser.add_argument("--option", action="append", default=[], help="NAME=VALUE for cmake")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    held = setup.lock("Makefile", "Another make is building in this tree; waiting for it.")
    try:
        if not arguments.no_packages:
            setup.install_packages()
        torch = None
        if arguments.torch != "none":
            torch = setup.find_torch(os.environ, arguments.torch == "cuda")
    except setup.SetupError as error:
        setup.say(f"set-up: {error}")
        sys.exit(2)
    for program in ("cmake", "ninja"):
        if not shutil.which(program):
            setup.say(f"set-up: no {program} on the PATH.")
            sys.exit(2)
    options = list(arguments.option)
    if arguments.torch == "none":
        options.append("TRIREME_LIBTORCH=OFF")
    configure(ROOT / arguments.folder, torch, options)
    # For tools/gpu_pass --pack, whose programs are then all of this commit.
    mark, commit = ROOT / arguments.folder / "commit", setup.tree_commit()
    mark.unlink(missing_ok=True)
    build(ROOT / arguments.folder, arguments.targets)
    if not arguments.targets or {"trireme", "test.tests.gpu"} <= set(arguments.targets):
        mark.write_text(commit, encoding="utf-8")
    held.close()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except PermissionError as error:  # as after `sudo make install`
        setup.say(f"set-up: {error.filename} may not be written ({error.strerror}). Give the tree back to "
                  f"yourself: sudo chown -R $(id -un) {shlex.quote(str(ROOT))}")
        sys.exit(2)
