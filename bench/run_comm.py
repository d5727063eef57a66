#!/usr/bin/env python3
"""Collectives of this tree against Open MPI, MPICH, Gloo and the yardstick, interleaved; prints
tables of ratios.

    bench/run_comm.py [COLLECTIVE...] [--ranks 2 4] [--transport shm] [--rounds 3] [--best]
                      [--sizes 8 1024 65536 ...] [--seconds 0.05] [--peers openmpi,mpich,gloo]
                      [--build build] [--python PYTHON_WITH_TORCH] [--json FILE] [--markdown FILE]

In every round each program runs once on each size, one program after the other, so that all see the
same minute of the machine; figures are medians over the rounds (--best: the least, for a machine
that others use too). A peer that is not there is left out, and a line says so. `yard` is
bench/comm/yardstick.c, `W` the time of the same reads and writes when nobody waits; `shared` is a
result that lives once per host, `W once` its reads and writes."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20]
TITLES = {"arena": "arena", "heap": "heap", "shared": "shared", "yard": "yard", "stream": "W",
          "stream_shared": "W once", "openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo"}
PEERS = ("openmpi", "mpich", "gloo")
OURS = ("arena", "heap", "shared")
SHARED = ("all_reduce", "broadcast", "all_gather")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collectives", nargs="*", default=["all_reduce"])
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--transport", default="shm", choices=["shm", "tcp"])
    parser.add_argument("--algorithm", help="of this tree's runs; default: its own choice")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--best", action="store_true", help="the least over the rounds")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seconds", type=float, default=0.05, help="per size and program")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--markdown", help="write the tables here")
    return parser.parse_args()


def build(options, target):
    if options.no_build:
        return os.path.exists(os.path.join(options.build, "bin", target))
    done = subprocess.run(["cmake", "--build", options.build, "--target", target],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode == 0


def mpirun(name, ranks):
    """Open MPI refuses root and more ranks than cores unless told; MPICH does neither."""
    program = shutil.which(f"mpirun.{name}")
    if program is None:
        return None
    if name == "mpich":
        return [program, "-np", str(ranks)] + (["-bind-to", "core"] if ranks <= os.cpu_count() else [])
    extra = ["--bind-to", "core"] if ranks <= os.cpu_count() else ["--oversubscribe"]
    return [program, "--allow-run-as-root", *extra, "-np", str(ranks)]


def programs(options, what, ranks):
    """name -> a function from sizes to a command."""
    path = lambda name: os.path.join(os.path.abspath(options.build), "bin", name)
    texts = lambda sizes: [str(size) for size in sizes]
    seconds = str(options.seconds)
    if not build(options, "bench.comm"):
        sys.exit("bench.comm does not build")
    own = [path("bench.comm"), "--collective", what, "--ranks", str(ranks), "--seconds", seconds,
           "--transport", options.transport]
    if options.algorithm:
        own += ["--algorithm", options.algorithm]
    found = {"arena": lambda sizes: own + texts(sizes)}
    if options.transport == "shm":
        if what in SHARED:
            found["shared"] = lambda sizes: own + ["--shared"] + texts(sizes)
        found["heap"] = lambda sizes: own + ["--heap"] + texts(sizes)
        if what == "all_reduce" and build(options, "bench.yardstick"):
            found["yard"] = lambda sizes: [path("bench.yardstick"), str(ranks), seconds, *texts(sizes)]
    for name in options.peers.split(","):
        if name in ("openmpi", "mpich"):
            run = mpirun(name, ranks)
            if run and build(options, f"bench.comm_{name}"):
                if options.transport == "tcp":
                    run += ["--mca", "btl", "tcp,self"] if name == "openmpi" else []
                found[name] = lambda sizes, run=run, name=name: [
                    *run, path(f"bench.comm_{name}"), what, seconds, *texts(sizes)]
                continue
        elif name == "gloo" and subprocess.run([options.python, "-c", "import torch.distributed"],
                                               stderr=subprocess.DEVNULL).returncode == 0:
            found[name] = lambda sizes: [options.python, os.path.join(HERE, "peers", "gloo.py"),
                                         what, str(ranks), seconds, *texts(sizes)]
            continue
        if name:
            print(f"{TITLES.get(name, name)} was not found: its column is left out", file=sys.stderr)
    return found


def run(command):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def measure(options, what, ranks):
    found = programs(options, what, ranks)
    runs = {}
    for number in range(options.rounds):
        for sizes in [[size] for size in options.sizes] + [options.sizes]:
            for name, command in found.items():
                if (name == "gloo") != (len(sizes) > 1 or len(options.sizes) == 1):
                    continue  # Python starts once a round, the others once a size
                print(f"{what}, {ranks} ranks, round {number + 1}: {name} {sizes}", file=sys.stderr)
                for line in run(command(sizes)):
                    runs.setdefault(name, {}).setdefault(line["bytes"], []).append(line["seconds"])
                    for key in ("stream", "stream_shared"):
                        if key + "_seconds" in line:
                            runs.setdefault(key, {}).setdefault(line["bytes"], []).append(
                                line[key + "_seconds"])
    choose = min if options.best else statistics.median
    return {name: {size: choose(many) for size, many in one.items()} for name, one in runs.items()}


def text_of(size):
    for unit, word in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {word}"
    return f"{size} B"


def time_of(seconds):
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2f} µs"
    return f"{seconds * 1e3:.2f} ms"


def measured_by(name):
    """Which of our columns a rival stands against."""
    return "shared" if name == "stream_shared" else "arena"


def table(figures):
    """Times, and behind every rival's how many times longer than ours it took."""
    names = [name for name in TITLES if name in figures]
    head = ["bytes", "arena GB/s"]
    for name in names:
        head += [TITLES[name]] + ([f"/ {measured_by(name)}"] if name not in OURS else [])
        head += ["/ heap"] if name in PEERS and "heap" in figures else []
    rows = [head, ["---:"] * len(head)]
    for size, own in figures["arena"].items():
        row = [text_of(size), f"{size / own / 1e9:.2f}"]
        for name in names:
            seconds = figures[name].get(size)
            row += [time_of(seconds) if seconds else "-"]
            if name not in OURS:
                ours = figures[measured_by(name)].get(size)
                row += [f"{seconds / ours:.2f}x" if seconds and ours else "-"]
            if name in PEERS and "heap" in figures:
                row += [f"{seconds / figures['heap'][size]:.2f}x" if seconds else "-"]
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main():
    options = parse()
    texts, everything = [], []
    for what in options.collectives:
        for ranks in options.ranks:
            figures = measure(options, what, ranks)
            everything.append({"collective": what, "ranks": ranks, "transport": options.transport,
                               "seconds": figures})
            texts.append(f"{what}, {ranks} ranks, {options.transport}:\n\n{table(figures)}\n")
            print(texts[-1], flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(everything, file, indent=1)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write("\n".join(texts))


if __name__ == "__main__":
    main()
