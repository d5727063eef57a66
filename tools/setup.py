#!/usr/bin/env python3
"""Installs what Trireme's build needs and is missing; prints the folder of LibTorch's CMake package.

Debian packages (tools/debian-packages.txt) come through apt-get as root or with sudo; without either
the exact command is printed and the set-up stops. LibTorch is TORCH_DIR, else Torch_DIR or
CMAKE_PREFIX_PATH, else the `torch` wheel in ./.venv. A half-made .venv (no stamp) is made anew.
Progress goes to stderr, stdout holds one line: the folder of TorchConfig.cmake.
When everything is there this asks dpkg-query once and opens no connection.
"""
import argparse
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"
# Module: the package that has it.
TEST_MODULES = {"numpy": "numpy", "safetensors": "safetensors", "tensorboard": "tensorboard",
                "kubeflow.training": "kubeflow-training", "kubeflow_trainer_api": "kubeflow-trainer-api",
                "kubernetes": "kubernetes<36", "yaml": "pyyaml", "moto.server": "moto[s3,server]"}
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# The size of the wheel's CUDA build, if the index does not tell it.
CUDA_SIZE_GUESS = "about 3 GB to download, 7 GB on disk"


class SetupError(Exception):
    """Stops the set-up with a sentence; the exit code is 2: nothing was started."""


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- Debian packages ------------------------------------------------------------------------------

def wanted_packages(text, sections=()):
    """The first word of each line that is not a comment; what follows [NAME] where it is asked for."""
    wanted, wants = [], True
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words and words[0].startswith("["):
            wants = words[0].strip("[]") in sections
        elif words and wants:
            wanted.append(words[0])
    return wanted


def missing_packages(wanted, dpkg_output):
    """`dpkg_output` holds one line a package: its name, then its three-letter status ("ii " = there)."""
    installed = set()
    for line in dpkg_output.splitlines():
        name, _, status = line.partition(" ")
        if status.startswith("ii") or status.startswith("hi"):
            installed.add(name.split(":")[0])
    return [name for name in wanted if name not in installed]


def apt_commands(missing, is_root, has_sudo):
    """The commands that install `missing`, or None where this user may not."""
    if not is_root and not has_sudo:
        return None
    prefix = [] if is_root else ["sudo", "DEBIAN_FRONTEND=noninteractive"]   # sudo drops the environment
    install = ["apt-get", "install", "-y", "--no-install-recommends",
               "-o", "DPkg::Lock::Timeout=300"] + missing
    return [prefix + ["apt-get", "update"], prefix + install]


def by_hand(missing):
    return "sudo apt-get update && sudo apt-get install -y --no-install-recommends " + " ".join(missing)


def sudo_works():
    """sudo is there, and either needs no password or has a terminal to ask for it."""
    if not shutil.which("sudo"):
        return False
    if sys.stdin is not None and sys.stdin.isatty():
        return True
    return subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def query_dpkg(wanted):
    return subprocess.run(["dpkg-query", "-W", "-f=${Package} ${db:Status-Abbrev}\\n", *wanted],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout


def lock(name, busy, mode="r+"):   # NFS locks only what may be written
    """Locks a file, by default of the tree, until what it returns is closed, or this process ends. Says `busy` if it must
    wait."""
    handle = open(ROOT / name, mode, encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(busy)
        fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def configure_again():
    """Build folders that were configured before look for everything once more."""
    for stamp in ROOT.glob("build*/trireme-configured.json"):
        stamp.unlink(missing_ok=True)


def install_packages(sections=()):
    wanted = wanted_packages((ROOT / "tools" / "debian-packages.txt").read_text(), sections)
    dpkg = shutil.which("dpkg-query")
    if not dpkg:
        say("This is no Debian: these parts (or their like) must be installed by you: "
            + " ".join(wanted))
        return
    missing = missing_packages(wanted, query_dpkg(wanted))
    if not missing:
        return
    rights = os.geteuid() == 0, os.geteuid() != 0 and sudo_works()
    if not any(rights):
        raise SetupError("Debian packages are missing, and this user is neither root nor may use sudo. "
                         "Run this, then the same make command again:\n\n  " + by_hand(missing))
    # One set-up of the machine at a time, of any tree: apt-get update does not wait for another one.
    with lock(dpkg, "Another set-up installs Debian packages; waiting for it.", "r"):
        missing = missing_packages(wanted, query_dpkg(wanted))   # it may have installed these
        if missing:
            apt_install(missing, *rights)
    still = missing_packages(wanted, query_dpkg(wanted))
    if still:
        raise SetupError("apt-get said yes but these are still missing: " + " ".join(still))
    configure_again()


def apt_install(missing, is_root, has_sudo):
    say(f"Installing {len(missing)} Debian packages: {' '.join(missing)}")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for command in apt_commands(missing, is_root, has_sudo):
        if subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode == 0:
            continue
        if command[-1] != "update":
            raise SetupError(f"'{' '.join(command)}' failed (its own words are above). "
                             f"Mend that, or install by hand:\n\n  {by_hand(missing)}")
        say("'apt-get update' failed (its own words are above); going on with the package lists that are here.")


# --- LibTorch -------------------------------------------------------------------------------------

def config_folder(prefix):
    """The folder of TorchConfig.cmake under `prefix` (a torch or libtorch folder), or None."""
    for folder in (prefix, prefix / "share" / "cmake" / "Torch"):
        if (folder / "TorchConfig.cmake").is_file():
            return folder
    return None


def torch_of_the_user(environment):
    """LibTorch that the user names: TORCH_DIR, else Torch_DIR, else CMAKE_PREFIX_PATH. None: no one."""
    named = environment.get("TORCH_DIR")
    if named:
        found = config_folder(pathlib.Path(named))
        if not found:
            raise SetupError(f"TORCH_DIR={named} holds no LibTorch (no share/cmake/Torch/"
                             "TorchConfig.cmake). Correct it, or unset it to let the set-up bring one.")
        return found
    candidates = [environment.get("Torch_DIR", "")]
    for paths in environment.get("CMAKE_PREFIX_PATH", "").split(";"):
        candidates += paths.split(":")
    for candidate in filter(None, candidates):
        found = config_folder(pathlib.Path(candidate))
        if found:
            return found
    return None


def cuda_packages(report):
    """Names of the CUDA parts in a report of `pip install --dry-run --report`."""
    names = [item["metadata"]["name"].lower().replace("_", "-") for item in report["install"]]
    return sorted(name for name in names
                  if name.startswith(("nvidia-", "cuda-", "pytorch-triton")) or name == "triton")


def describe_bytes(total, unknown):
    """How large a download is, in words; `unknown` parts told no size."""
    if total < 10**8:    # the index told next to nothing
        return CUDA_SIZE_GUESS
    return f"{'at least ' if unknown else ''}{total / 1e9:.1f} GB to download"


def download_size(report):
    total, unknown = 0, 0
    for item in report["install"]:
        url = item["download_info"]["url"]
        try:
            if url.startswith("file:"):
                total += os.path.getsize(urllib.request.url2pathname(url[len("file://"):]))
                continue
            request = urllib.request.Request(url, method="HEAD")
            with urllib.request.urlopen(request, timeout=5) as answer:
                total += int(answer.headers["Content-Length"])
        except (OSError, TypeError, ValueError):
            unknown += 1
    return describe_bytes(total, unknown)


def choose_wheel(report, allow_cuda, cpu_index_works, size_of):
    """Extra arguments for `pip install`, from what it says it would bring.

    The plain wheel where it brings no CUDA; else PyTorch's CPU index; else nothing without leave.
    """
    cuda = cuda_packages(report)
    if not cuda or allow_cuda:
        return []
    if cpu_index_works():
        return ["--index-url", CPU_INDEX]
    raise SetupError(f"pip would bring CUDA with torch ({len(cuda)} packages, {size_of(report)}), and "
                     "PyTorch's index of CPU wheels cannot be reached.\n"
                     "To take the large one: make train TORCH=cuda\n"
                     "To use a LibTorch that you have: make train TORCH_DIR=/path/to/torch")


def has_cuda(config):
    """LibTorch, whose TorchConfig.cmake is in `config`, was built with CUDA."""
    return (config.parents[2] / "lib" / "libtorch_cuda.so").is_file()


class Venv:
    """./.venv: ours by its mark, whole by its stamp."""

    def __init__(self, folder):
        self.folder = folder
        self.mark = folder / "trireme-setup"         # written first: we may remove this folder
        self.stamp = folder / "trireme-torch.json"   # written last: the folder is complete
        self.python = folder / "bin" / "python"

    def torch(self, wants_cuda=False):
        """The folder of TorchConfig.cmake if the environment is whole, else None. `wants_cuda`: also None if the wheel
        with CUDA has not been asked for."""
        try:
            stamp = json.loads(self.stamp.read_text())
            found = pathlib.Path(stamp["config"])
            usable = stamp["torch"] == TORCH and (not wants_cuda or stamp.get("cuda") or has_cuda(found))
            return found if usable and (found / "TorchConfig.cmake").is_file() else None
        except (OSError, ValueError, KeyError):
            return None

    def check_ours(self):
        if self.folder.exists() and not self.mark.exists() and any(self.folder.iterdir()):
            raise SetupError(f"{self.folder} is there but was not made by this set-up. Move it away, or "
                             "name the LibTorch to use: make train TORCH_DIR=/path/to/torch")

    def clear(self):
        """Empties the folder except for the mark, which is there at any time: this may be interrupted."""
        try:
            self.folder.mkdir(exist_ok=True)
            self.mark.write_text("Made by tools/setup.py, which may remove this folder.\n")
            self.stamp.unlink(missing_ok=True)
            for entry in self.folder.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry != self.mark:
                    entry.unlink()
        except OSError as error:
            raise SetupError(f"{self.folder} cannot be emptied: {error}. Remove it yourself, then run the same make "
                             "command again.") from error

    def create(self):
        """A fresh environment with pip in it, by the first Python that can."""
        tried = []
        for python in dict.fromkeys([shutil.which("python3"), "/usr/bin/python3"]):
            if not python or not os.access(python, os.X_OK):
                continue
            self.clear()
            tried.append(python)
            if subprocess.run([python, "-m", "venv", str(self.folder)], stdout=sys.stderr,
                              check=False).returncode == 0 and self.pip("--version", quiet=True) == 0:
                return
        raise SetupError(f"no Python could make a virtual environment (tried {', '.join(tried)}). "
                         "Install python3-venv.")

    def pip(self, *arguments, quiet=False):
        return subprocess.run([str(self.python), "-m", "pip", "--disable-pip-version-check", *arguments],
                              stdout=subprocess.DEVNULL if quiet else sys.stderr,
                              stderr=subprocess.DEVNULL if quiet else None, check=False).returncode

    def report(self, *arguments, quiet=False):
        """What pip would install, or None where it cannot tell."""
        path = self.folder / "pip-report.json"
        code = self.pip("install", "--dry-run", "--quiet", "--ignore-installed", "--report", str(path),
                        *arguments, quiet=quiet)
        return json.loads(path.read_text()) if code == 0 else None


def install_torch(venv, allow_cuda):
    say(f"Making a virtual environment in {venv.folder} for LibTorch ({TORCH}).")
    venv.check_ours()
    venv.create()
    # Before 23.2 a dry run downloads whole wheels to read their dependencies.
    venv.pip("install", "--quiet", "--upgrade", "pip>=23.2", quiet=True)
    say("Asking pip what it would bring.")
    report = venv.report(TORCH)
    if report is None:
        raise SetupError(f"pip could not find {TORCH} (its own words are above). Check the connection, or "
                         "name a LibTorch that you have: make train TORCH_DIR=/path/to/torch")

    def cpu_index_works():
        say("The default wheel brings CUDA; asking PyTorch's index of CPU wheels.")
        return venv.report(TORCH, "--index-url", CPU_INDEX, "--timeout", "10", "--retries", "1",
                           quiet=True) is not None

    extra = choose_wheel(report, allow_cuda, cpu_index_works, download_size)
    say("Installing " + TORCH + (" from PyTorch's index of CPU wheels." if extra else "."))
    if venv.pip("install", *extra, TORCH) != 0:
        raise SetupError(f"pip could not install {TORCH} (its own words are above). Run the same make "
                         "command again: the set-up starts over where it is not whole.")
    found = [config_folder(path) for path in venv.folder.glob("lib/python3*/site-packages/torch")]
    if not found or not found[0]:
        raise SetupError("pip installed torch, but it holds no TorchConfig.cmake. Name another LibTorch: "
                         "make train TORCH_DIR=/path/to/torch")
    partial = venv.stamp.with_suffix(".part")
    partial.write_text(json.dumps({"torch": TORCH, "config": str(found[0]), "cuda": allow_cuda}))
    partial.rename(venv.stamp)
    return found[0]


def tree_commit():
    """The commit of the tree, with a mark where files were changed; "" where git does not know or is not there."""
    def git(*words):
        try:
            done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
        except OSError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--", ".", ":!docs/gpu.md")  # which tools/gpu_pass writes
    return git("rev-parse", "--short=12", "HEAD") + ("-changed" if changed else "")


def find_torch(environment, allow_cuda):
    found = torch_of_the_user(environment)
    if found:
        return found
    venv = Venv(ROOT / ".venv")
    ready = venv.torch(wants_cuda=allow_cuda)
    if ready:
        return ready
    with venv_lock():
        return venv.torch(wants_cuda=allow_cuda) or install_torch(venv, allow_cuda)


def venv_lock():
    return lock(pathlib.Path(__file__).resolve(), "Another make sets up .venv; waiting for it.")


def install_test_modules():
    """What tests/compat reads our files with. Only into our own environment; else it says so."""
    venv = Venv(ROOT / ".venv")
    if venv.torch() is None:
        say(f"LibTorch is not that of .venv: tests/compat needs a Python with {', '.join(TEST_MODULES)} "
            "(TRIREME_PYTHON, TRIREME_TENSORBOARD_PYTHON).")
        return
    if subprocess.run([str(venv.python), "-c", "import " + ", ".join(TEST_MODULES)],
                      stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return
    say(f"Installing what tests read our files with: {', '.join(TEST_MODULES)}.")
    with venv_lock():
        code = venv.pip("install", "--quiet", *TEST_MODULES.values())
    if code != 0:
        say("pip could not install them (its own words are above): the tests that need them are left out.")
        return
    configure_again()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", choices=["cpu", "cuda"], default="cpu",
                        help="cuda: take the wheel with CUDA where there is no other")
    parser.add_argument("--packages-only", action="store_true", help="no LibTorch")
    parser.add_argument("--tests", action="store_true", help="also what `make test` needs")
    parser.add_argument("--soak", action="store_true", help="also what `make soak` needs")
    arguments = parser.parse_args()
    try:
        install_packages(["test"] * (arguments.tests or arguments.soak) + ["soak"] * arguments.soak)
        if not arguments.packages_only:
            print(find_torch(os.environ, arguments.torch == "cuda"))
            if arguments.tests:
                install_test_modules()
    except SetupError as error:
        say(f"set-up: {error}")
        sys.exit(2)


if __name__ == "__main__":
    main()
