"""What a machine has for tools/gpu_pass: a Python with LibTorch, its GPUs, the driver, what a build needs."""
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import setup

# The least that a build of the command and of one test program needs: a Debian package of
# tools/debian-packages.txt -> a program on the PATH or a header that shows that it is there.
NEEDED = {
    "g++": "c++", "cmake": "cmake", "ninja-build": "ninja", "pkg-config": "pkg-config",
    "protobuf-compiler": "protoc", "protobuf-compiler-grpc": "grpc_cpp_plugin",
    "libgrpc++-dev": "grpcpp/grpcpp.h", "libprotobuf-dev": "google/protobuf/message.h",
    "libssl-dev": "openssl/sha.h", "libtomlplusplus-dev": "toml++/toml.h", "libcli11-dev": "CLI/CLI.hpp",
    "nlohmann-json3-dev": "nlohmann/json.hpp", "libcurl4-openssl-dev": "curl/curl.h",
    "libxxhash-dev": "xxhash.h", "zlib1g-dev": "zlib.h", "libgtest-dev": "gtest/gtest.h",
    "libgmock-dev": "gmock/gmock.h"}

# Files of a build: programs, and a library that only a rehearsal needs.
PROGRAMS = pathlib.Path("bin", "trireme"), pathlib.Path("lib", "trireme", "trireme")
TESTS = pathlib.Path("tests", "test.tests.gpu")
FAKE_DRIVER = pathlib.Path("tests", "libtrireme_fake_gpu.so")
# Every machine has these; others' would not go with its kernel and its compiler's libraries.
EVERYWHERE = re.compile(r"ld-linux|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s)\.so")

# Printed by a Python that may hold LibTorch.
PROBE = """
import json, pathlib, torch
cuda = torch.version.cuda
found = {"version": torch.__version__, "cuda": cuda, "folder": str(pathlib.Path(torch.__file__).parent), "gpus": []}
if cuda and torch.cuda.is_available():
    found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    for index in range(torch.cuda.device_count()):
        one = torch.cuda.get_device_properties(index)
        found["gpus"].append({"name": one.name, "memory": one.total_memory, "architecture": f"{one.major}{one.minor}"})
print(json.dumps(found))
"""


@dataclasses.dataclass
class Torch:
    """A Python that holds LibTorch."""
    python: str
    version: str
    cuda: str | None         # "13.0"
    folder: str              # of the package
    gpus: list               # name, memory in bytes, architecture ("90")
    nccl: str = ""

    def usable(self):
        return bool(self.cuda and self.gpus)

    def describe(self):
        kind = f"CUDA {self.cuda}, {len(self.gpus)} GPUs" if self.cuda else "for the CPU alone"
        return f"{self.python} (torch {self.version}, {kind})"


def pythons(environment):
    """Those that may hold LibTorch, the likeliest first."""
    named = environment.get("TORCH_DIR")
    found = [str(pathlib.Path(named, "../../../../bin/python3"))] if named else []
    found += [str(setup.ROOT / ".venv/bin/python"), shutil.which("python3") or "", sys.executable]
    return [one for one in dict.fromkeys(found) if one and os.access(one, os.X_OK)]


def probe(python):
    """Its Torch, or None."""
    try:
        done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
    except OSError:   # no such program
        return None
    if done.returncode != 0:
        return None
    return Torch(python, **json.loads(done.stdout.splitlines()[-1]))


def choose(torches, needs_gpu, tried=()):
    """The first that can be used, of those of the pythons `tried` that hold LibTorch. Raises SetupError where there is
    none, and where a GPU is needed and none can be used."""
    if not torches:
        raise setup.SetupError(f"No Python here holds LibTorch (tried {', '.join(tried) or 'none'}). Name one: "
                               "tools/gpu_pass --python /path/to/python3")
    usable = [one for one in torches if one.usable()]
    if usable or not needs_gpu:
        return (usable or torches)[0]
    raise setup.SetupError("No GPU can be used here: found " + "; ".join(one.describe() for one in torches)
                           + ". Start it where `nvidia-smi` lists a GPU and a Python holds torch with CUDA "
                           "(`make build TORCH=cuda`, or --python), or use --rehearse, which needs no GPU.")


def driver():
    """The version of NVIDIA's driver, or ""."""
    if not shutil.which("nvidia-smi"):
        return ""
    done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                          capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout.strip() else ""


def has_header(name):
    """The compiler finds it, wherever its folders are."""
    return subprocess.run(["c++", "-E", "-x", "c++", "-std=c++20", "-", "-o", "/dev/null"],
                          input=f"#if !__has_include(<{name}>)\n#error\n#endif\n", text=True,
                          capture_output=True, check=False).returncode == 0


def missing(which=shutil.which, header=has_header):
    """The Debian packages without which nothing can be built."""
    programs = [package for package, proof in NEEDED.items() if "." not in proof and not which(proof)]
    if "g++" in programs:
        return programs
    return programs + [package for package, proof in NEEDED.items() if "." in proof and not header(proof)]


def check_packages(found):
    if found:
        raise setup.SetupError("The build needs Debian packages that are missing here. Install them, or unpack them "
                               f"with `dpkg -x` where there is no network:\n\n  {setup.by_hand(found)}")


def libraries_of(program, ldd=None):
    """What a program needs beside LibTorch and what every machine has: name -> path."""
    text = ldd or subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", text, re.MULTILINE))
    return {name: path for name, path in found.items()
            if not EVERYWHERE.match(name) and not {"torch", "nvidia"} & set(pathlib.Path(path).parts)}


def pack(build, folder, commit):
    """Copies a build's programs and their libraries into `folder`, which another machine can use."""
    programs = [build / one for one in (*PROGRAMS, TESTS)]
    absent = [str(one) for one in programs if not one.is_file()]
    if absent:
        raise setup.SetupError(f"There is no {' and no '.join(absent)}. Build first: python3 tools/build.py --torch cuda "
                               "--folder build-gpu trireme test.tests.gpu")
    mark = build / "commit"   # tools/build.py writes it
    built = mark.read_text() or commit if mark.is_file() else "an unknown commit"   # empty: git could not tell it
    if built != commit:
        raise setup.SetupError(f"{build} was built from {built}, and this tree is {commit}. Build it again: python3 "
                               "tools/build.py --torch cuda --folder build-gpu trireme test.tests.gpu")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "commit").is_file():
        raise setup.SetupError(f"{folder} holds other files. Name a new folder, or remove it.")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        copy_build(build, programs, folder)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / "libtorch").write_text(libtorch_of(build))
    (folder / "commit").write_text(commit)


def libtorch_of(build):
    """Its version, such as 2.13, for which a build was configured; empty where that is not known."""
    try:
        text = json.loads((build / "trireme-configured.json").read_text())["libtorch"]
    except (OSError, ValueError, KeyError):
        return ""
    return re.search(r"\d+\.\d+", text)[0] if text else ""


def copy_build(build, programs, folder):
    for name in ("bin", "tests", "lib/trireme"):
        (folder / name).mkdir(parents=True)
    for program in programs:
        shutil.copy2(program, folder / program.relative_to(build))
        for name, path in libraries_of(program).items():
            shutil.copy2(path, folder / "lib" / name)
    if (build / FAKE_DRIVER).is_file():
        shutil.copy2(build / FAKE_DRIVER, folder / FAKE_DRIVER)


def check_packed(folder, commit):
    marker = folder / "commit"
    if not marker.is_file():
        raise setup.SetupError(f"{folder} is no packed build: tools/gpu_pass --pack {folder}, where there is one.")
    if marker.read_text() != commit:
        raise setup.SetupError(f"{folder} was built from {marker.read_text()}, and this tree is {commit}. Build and pack "
                               "this one, or name the commit with --commit.")


def check_torch(folder, torch):
    """LibTorch's classes differ between its minor versions, of which nothing else would say anything."""
    mark = folder / "libtorch"
    built = mark.read_text() if mark.is_file() else ""
    if built and not f"{torch.version}.".startswith(f"{built}."):
        raise setup.SetupError(f"{folder} was built with LibTorch {built}, and {torch.describe()} is another one. Name a "
                               f"Python with torch {built} with --python, or build and pack with this one.")


def environment_of(packed, torch):
    """With it packed programs find their libraries, and this machine's LibTorch and NCCL."""
    site = pathlib.Path(torch.folder)
    folders = [str(packed / "lib"), str(site / "lib"), str(site.parent / "nvidia" / "nccl" / "lib"),
               os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(filter(None, folders))}
