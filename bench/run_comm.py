#!/usr/bin/env python3
"""All-reduce of this tree against Open MPI and Gloo, interleaved; prints a table of ratios.

    bench/run_comm.py [--build build] [--python PYTHON_WITH_TORCH] [--ranks 2] [--rounds 3]
                      [--max BYTES] [--seconds 0.05] [--json FILE] [--markdown FILE]

Every round runs each of the three once over all sizes; the figures are medians over the rounds.
A peer that is not there (no mpirun, no torch) is left out, and a line says so."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max", type=int, default=128 << 20)
    parser.add_argument("--seconds", type=float, default=0.05, help="per size and program")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--markdown", help="write the table here")
    return parser.parse_args()


def programs(options):
    build = os.path.abspath(options.build)
    subprocess.run(["cmake", "--build", build, "--target", "bench.all_reduce"], check=True,
                   stdout=sys.stderr)
    common = [str(options.ranks), str(options.max), str(options.seconds)]
    found = {"trireme": [os.path.join(build, "bin", "bench.all_reduce"), "--ranks", common[0],
                         "--max", common[1], "--seconds", common[2]]}
    found["staged"] = found["trireme"] + ["--heap"]
    mpi = subprocess.run(["cmake", "--build", build, "--target", "bench.all_reduce_mpi"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if mpi.returncode == 0 and shutil.which("mpirun"):
        found["openmpi"] = ["mpirun", "--allow-run-as-root", "--bind-to", "core", "-np", common[0],
                            os.path.join(build, "bin", "bench.all_reduce_mpi"), *common[1:]]
    else:
        print("Open MPI was not found: its column is left out", file=sys.stderr)
    torch = subprocess.run([options.python, "-c", "import torch.distributed"],
                           stderr=subprocess.DEVNULL)
    if torch.returncode == 0:
        found["gloo"] = [options.python, os.path.join(HERE, "peers", "gloo_allreduce.py"), *common]
    else:
        print("torch was not found: Gloo's column is left out", file=sys.stderr)
    return found


def run(command):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, text=True)
    lines = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return {line["bytes"]: line["seconds"] for line in lines}


def measure(options):
    found = programs(options)
    runs = {name: [] for name in found}
    for number in range(options.rounds):
        for name, command in found.items():
            print(f"round {number + 1} of {options.rounds}: {name}", file=sys.stderr)
            runs[name].append(run(command))
    return {name: {size: statistics.median(one[size] for one in many) for size in many[0]}
            for name, many in runs.items()}


def text_of(size):
    for unit, word in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {word}"
    return f"{size} B"


def time_of(seconds):
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms"


def table(figures):
    peers = [name for name in ("openmpi", "gloo") if name in figures]
    titles = {"openmpi": "Open MPI", "gloo": "Gloo"}
    head = ["bytes", "arena", "GB/s", "heap"]
    for peer in peers:
        head += [titles[peer], f"{titles[peer]} / arena"]
    rows = [head, ["---:"] * len(head)]
    for size, own in figures["trireme"].items():
        row = [text_of(size), time_of(own), f"{size / own / 1e9:.2f}",
               time_of(figures["staged"][size])]
        for peer in peers:
            row += [time_of(figures[peer][size]), f"{figures[peer][size] / own:.1f}x"]
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main():
    options = parse()
    figures = measure(options)
    text = table(figures)
    print(text)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"ranks": options.ranks, "seconds": figures}, file, indent=1)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
