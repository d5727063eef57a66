#!/usr/bin/env python3
"""oneCCL for the tables of bench/run_comm.py: an environment of its own with Intel's wheels.

    bench/peers/oneccl.py [--folder .venv-oneccl]     installs it (2 GB; about a minute)

Only run_comm.py reads it; nothing of it is linked into anything but bench.comm_oneccl. How it is run:
every rank on a core, over Intel MPI's shared memory. CCL_WORKER_OFFLOAD=0: the worker thread that it
starts otherwise would fight for the rank's only core. CCL_ALLREDUCE=direct (Intel MPI's own) was the
fastest of its all-reduces on two machines. Both give way to what the environment says."""
import argparse
import functools
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / ".venv-oneccl"
WHEELS = ["oneccl", "oneccl-devel", "impi-rt"]
HOW = "to have it: python3 bench/peers/oneccl.py (2 GB)"
NUMBERS = itertools.count()  # of runs


def build(folder, program):
    """Compiles bench.comm_oneccl; False where oneCCL is not installed in `folder`."""
    lib, source = folder / "lib", HERE.parent / "comm" / "comm_oneccl.cc"
    if not (lib / "libccl.so.1").exists() or not (folder / "bin" / "mpirun").exists():
        return False
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return True
    done = subprocess.run(["g++", "-std=c++17", "-O2", "-o", program, source, f"-I{folder}/include",
                           f"-L{lib}", "-l:libccl.so.1", f"-Wl,-rpath-link,{lib}"],
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
    return done.returncode == 0


@functools.cache
def meetings():
    """A folder that is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="oneccl-")


def command(folder, program, what, ranks, seconds, sizes):
    """The command line of one run; without -ppn, Intel MPI takes one host for several."""
    meeting = os.path.join(meetings().name, f"address-{next(NUMBERS)}")
    return ["env", f"LD_LIBRARY_PATH={folder}/lib", f"I_MPI_ROOT={folder}", f"CCL_ROOT={folder}",
            f"CCL_WORKER_OFFLOAD={os.environ.get('CCL_WORKER_OFFLOAD', '0')}",
            f"CCL_ALLREDUCE={os.environ.get('CCL_ALLREDUCE', 'direct')}", "CCL_LOG_LEVEL=error",
            "I_MPI_PIN=0", str(folder / "bin" / "mpirun"), "-ppn", str(ranks), "-n", str(ranks),
            str(program), meeting, what, seconds, *sizes]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    folder = parser.parse_args().folder
    for step in ([sys.executable, "-m", "venv", folder],
                 [folder / "bin" / "python", "-m", "pip", "install", "--quiet", *WHEELS]):
        if subprocess.run(step, check=False).returncode != 0:
            sys.exit(f"oneCCL was not installed: its column will be left out. {' '.join(WHEELS)} "
                     "are wheels of Intel's on PyPI, for x86-64.")


if __name__ == "__main__":
    main()
