#!/usr/bin/env python3
"""Collectives of this tree against Open MPI, MPICH, Gloo, oneCCL and the yardsticks, interleaved.

    bench/run_comm.py [COLLECTIVE...] [--ranks 2 4] [--transport shm] [--rounds 3] [--best]
                      [--sizes 8 1024 65536 ...] [--seconds 0.05] [--peers openmpi,mpich,gloo,oneccl]
                      [--build build] [--python PYTHON_WITH_TORCH] [--json FILE]
    bench/run_comm.py --suite --json FILE      all of docs/benchmarks.md (bench/report.py writes it)

In every round each program runs once on each size, one program after the other, so that all see the
same minute of the machine; figures are medians over the rounds (--best: the least, for a machine
that others use too). --priority: the programs go before other work, for such a machine. `yard` is
bench/comm/yardstick.c or tcp_yardstick.c, `W` the time of the same reads and writes when nobody
waits."""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

import report
from peers import oneccl
from peers.programs import PEERS, SLOW_STARTERS, Programs
from turns import machine

HERE = pathlib.Path(__file__).resolve().parent
SIZES = [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20]
LARGE = SIZES[2:5]
# Buffers of an arena of two: mappings 256 MiB apart collide in the processor's caches unless each
# begins at an offset of its own.
ARENAS = [127 << 20, 128 << 20, 129 << 20]
MOVES = ["broadcast", "all_gather", "reduce_scatter", "all_to_all", "reduce", "gather", "scatter"]
# collective, ranks, transport, sizes
SUITE = [("all_reduce", 2, "shm", SIZES), ("all_reduce", 4, "shm", SIZES),
         ("all_reduce", 2, "tcp", SIZES), ("all_reduce", 2, "mpi", SIZES),
         *((what, 2, "shm", LARGE) for what in MOVES),
         *((what, 4, "shm", LARGE) for what in MOVES[:4])]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collectives", nargs="*", default=["all_reduce"],
                        help="all_reduce, broadcast, ...; arenas: all_reduce in arenas of sizes that collide easily")
    parser.add_argument("--suite", action="store_true", help="every table of docs/benchmarks.md")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--oneccl", type=pathlib.Path, default=oneccl.FOLDER, help="where it is installed")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--transport", default="shm", choices=["shm", "tcp", "mpi"])
    parser.add_argument("--algorithm", help="of this tree's runs; default: its own choice")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--best", action="store_true", help="the least over the rounds")
    parser.add_argument("--priority", action="store_true", help="the programs go before the machine's other work")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seconds", type=float, default=0.05, help="per size and program")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    if unknown := set(filter(None, options.peers.split(","))) - set(PEERS):
        parser.error(f"--peers {unknown.pop()} is not one of {', '.join(PEERS)}; --peers '' measures none of them")
    options.build, options.oneccl = options.build.resolve(), options.oneccl.resolve()
    return options


def descendants(root):
    """Process ids of `root` and of all that it started; launchers put theirs in groups of their own."""
    children = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
        children.setdefault(parent, []).append(int(entry.parent.name))
    found = [root]
    for one in found:
        found += children.get(one, [])
    return found


def lines_of(output):
    return [json.loads(line) for line in output.splitlines()
            if line.startswith("{") and line.endswith("}")]


def run(command, prefix):
    """The JSON lines of a program; those so far of one that did not end within a minute."""
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    with subprocess.Popen(prefix + command, stdout=subprocess.PIPE, env=environment,
                          text=True) as program:
        try:
            output, _ = program.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            for one in descendants(program.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            print(f"ended after a minute: {' '.join(command)}", file=sys.stderr)
            output, _ = program.communicate()
            return lines_of(output)
    if program.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with {program.returncode}")
    return lines_of(output)


def before_others(ranks):
    """Puts a command before the machine's other work. Ranks that share a core and spin would keep it
    for ever under real-time priority, so they are only nice."""
    return ["chrt", "-f", "10"] if ranks <= os.cpu_count() else ["nice", "-n", "-20"]


def measure(options, what, ranks, transport, all_sizes):
    programs = Programs(options, what, ranks, transport).found
    prefix = before_others(ranks) if options.priority else []
    runs = {}
    for number in range(options.rounds):
        turns = [([size], False) for size in all_sizes] + [(all_sizes, True)]
        for sizes, slow_starters in turns:
            for name, command in programs.items():
                if (name in SLOW_STARTERS) != slow_starters:
                    continue
                print(f"{what}, {ranks} ranks, {transport}, round {number + 1}: {name} {sizes}",
                      file=sys.stderr)
                for line in run(command([str(size) for size in sizes]), prefix):
                    runs.setdefault(name, {}).setdefault(line["bytes"], []).append(line["seconds"])
                    if "stream_seconds" in line:
                        runs.setdefault("stream", {}).setdefault(line["bytes"], []).append(
                            line["stream_seconds"])
    choose = min if options.best else statistics.median
    return {name: {size: choose(many) for size, many in one.items()} for name, one in runs.items()}


def measure_arenas(options):
    """buffer -> size -> seconds of an all_reduce in an arena of two such buffers."""
    own = Programs(options, "all_reduce", 2, "shm").found["arena"]
    prefix = before_others(2) if options.priority else []
    runs = {buffer: {} for buffer in ARENAS}
    for _ in range(options.rounds):
        for buffer, found in runs.items():
            for line in run(own([str(size) for size in (64 << 10, 1 << 20, buffer)]), prefix):
                found.setdefault(line["bytes"], []).append(line["seconds"])
    choose = min if options.best else statistics.median
    return {buffer: {size: choose(many) for size, many in found.items()}
            for buffer, found in runs.items()}


def write(path, everything):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(everything, file, indent=1)


def main():
    options = parse()
    if options.priority:  # above its programs, so that it can end them
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(20))
    suite = SUITE if options.suite else [
        (what.replace("-", "_"), ranks, options.transport, options.sizes)
        for what in options.collectives if what != "arenas" for ranks in options.ranks]
    how = ("the least" if options.best else "the median") + f" of {options.rounds} rounds" + (
        ", every program before the machine's other work" if options.priority else "")
    everything = {"machine": machine(), "date": datetime.date.today().isoformat(), "how": how,
                  "runs": []}
    for what, ranks, transport, sizes in suite:
        seconds = measure(options, what, ranks, transport, sizes)
        everything["runs"].append({"collective": what, "ranks": ranks, "transport": transport,
                                   "seconds": seconds})
        print(f"{what}, {ranks} ranks, {transport}:\n\n{report.tables(seconds)}\n", flush=True)
        if options.json:  # after every table: a long run may be cut off
            write(options.json, everything)
    if options.suite or "arenas" in options.collectives:
        everything["arenas"] = measure_arenas(options)
        print(f"arenas:\n\n{report.arena_table(everything['arenas'])}\n", flush=True)
        if options.json:
            write(options.json, everything)


if __name__ == "__main__":
    main()
