#!/usr/bin/env python3
"""Collectives of this tree against Open MPI, MPICH, Gloo, oneCCL and the yardsticks, interleaved.

    bench/run_comm.py [COLLECTIVE...] [--ranks 2 4] [--transport shm] [--rounds 3] [--best]
                      [--sizes 8 1024 65536 ...] [--seconds 0.05] [--peers openmpi,mpich,gloo,oneccl]
                      [--build build] [--python PYTHON_WITH_TORCH] [--json FILE]
    bench/run_comm.py --suite --json FILE      all of docs/benchmarks.md (bench/report.py writes it)

In every round each program runs once on each size, one program after the other, so that all see the
same minute of the machine; figures are medians over the rounds (--best: the least, for a machine
that others use too). A program that does not end in one of the rounds has no figure. --priority: the
programs go before other work (chrt -f 10, or nice if ranks share cores), for such a machine. `yard` is
bench/comm/yardstick.c or tcp_yardstick.c, `W` the time of the same reads and writes when nobody
waits."""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

import report
import turns
from peers import oneccl
from peers.programs import PEERS, SLOW_STARTERS, Programs

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
    parser = turns.parser(__doc__, steps=None)
    parser.add_argument("collectives", nargs="*", default=["all_reduce"],
                        help="all_reduce, broadcast, ...; arenas: all_reduce in arenas of sizes that collide easily")
    parser.add_argument("--suite", action="store_true", help="every table of docs/benchmarks.md")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--oneccl", type=pathlib.Path, default=oneccl.FOLDER, help="where it is installed")
    parser.add_argument("--ranks", type=turns.at_least(1), nargs="+", default=[2])
    parser.add_argument("--transport", default="shm", choices=["shm", "tcp", "mpi"])
    parser.add_argument("--algorithm", help="of this tree's runs; default: its own choice")
    parser.add_argument("--best", action="store_true", help="the least over the rounds")
    parser.add_argument("--sizes", type=turns.at_least(4), nargs="+", default=SIZES)
    parser.add_argument("--seconds", type=turns.positive, default=0.05, help="per size and program")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--no-build", action="store_true")
    options = parser.parse_args()
    if unknown := set(filter(None, options.peers.split(","))) - set(PEERS):
        parser.error(f"--peers {unknown.pop()} is not one of {', '.join(PEERS)}; --peers '' measures none of them")
    options.build, options.oneccl = pathlib.Path(options.build).resolve(), options.oneccl.resolve()
    return options


def run(command, prefix, silence):
    """The JSON lines of a program; those so far of one that printed nothing for `silence` seconds."""
    lines = []
    with turns.started(prefix + command, environment={"OMP_NUM_THREADS": "1"}) as program:
        try:
            for line in turns.lines_of(program, lambda: silence):
                if found := turns.JSON_LINE.fullmatch(line):
                    lines.append(json.loads(found[1]))
            code = program.wait(silence)
        except (TimeoutError, subprocess.TimeoutExpired):
            print(f"killed, as it printed nothing for {silence:.0f} s: {' '.join(command)}", file=sys.stderr)
            return lines
    if code != 0:
        sys.exit(f"{' '.join(command)} failed with {code}")
    return lines


def before_others(ranks):
    """Puts a command before the machine's other work. Ranks that share a core and spin would keep it
    for ever under real-time priority, so they are only nice."""
    return ["chrt", "-f", "10"] if ranks <= turns.cores() else ["nice", "-n", "-20"]


def add_figures(runs, options, command, sizes, ranks):
    """Runs a program once on `sizes` and adds its seconds to runs: "seconds" and, of a yardstick, "stream_seconds" -> size
    -> those of the rounds."""
    prefix = before_others(ranks) if options.priority else []
    for line in run(command([str(size) for size in sizes]), prefix, 60 + 4 * options.seconds * len(sizes)):
        for key in line.keys() & {"seconds", "stream_seconds"}:
            runs.setdefault(key, {}).setdefault(line["bytes"], []).append(line[key])


def chosen(options, name, many):
    """size -> the figure of all rounds; a program that did not end in one of them has none."""
    for size, seconds in many.items():
        if len(seconds) < options.rounds:
            print(f"{name}, {size} bytes: left out, as {len(seconds)} of {options.rounds} rounds ended", file=sys.stderr)
    choose = min if options.best else statistics.median
    return {size: choose(seconds) for size, seconds in many.items() if len(seconds) >= options.rounds}


def measure(options, what, ranks, transport, all_sizes):
    """program -> size -> seconds; of the yardstick's stream, too. A peer that has no figure is left out."""
    programs = Programs(options, what, ranks, transport).found
    runs = {name: {} for name in programs}
    for number in range(options.rounds):
        for sizes, slow_starters in [*(([size], False) for size in all_sizes), (all_sizes, True)]:
            for name, command in programs.items():
                if (name in SLOW_STARTERS) != slow_starters:
                    continue
                print(f"{what}, {ranks} ranks, {transport}, round {number + 1}: {name} {sizes}", file=sys.stderr)
                add_figures(runs[name], options, command, sizes, ranks)
    figures = {name: chosen(options, name, one.get("seconds", {})) for name, one in runs.items()
               if "seconds" in one or name in report.OURS}
    streams = [one["stream_seconds"] for one in runs.values() if "stream_seconds" in one]
    return figures | {"stream": chosen(options, "stream", one) for one in streams}


def measure_arenas(options):
    """buffer -> size -> seconds of an all_reduce in an arena of two such buffers."""
    alone = argparse.Namespace(**vars(options) | {"peers": ""})
    own = Programs(alone, "all_reduce", 2, "shm").found["arena"]
    runs = {buffer: {} for buffer in ARENAS}
    for _ in range(options.rounds):
        for buffer, found in runs.items():
            add_figures(found, options, own, [64 << 10, 1 << 20, buffer], 2)
    return {buffer: chosen(options, f"arena of {buffer}", found.get("seconds", {})) for buffer, found in runs.items()}


def write(path, everything):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(everything, file, indent=1)


def main():
    options = parse()
    if options.priority:  # above its programs, so that it can end them
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(20))
        except PermissionError as error:
            sys.exit(f"--priority needs the right to real-time priority, as root has it: {error}")
    suite = SUITE if options.suite else [
        (what.replace("-", "_"), ranks, options.transport, options.sizes)
        for what in options.collectives if what != "arenas" for ranks in options.ranks]
    how = ("the least" if options.best else "the median") + f" of {options.rounds} rounds" + (
        ", every program before the machine's other work" if options.priority else "")
    everything = {"machine": turns.machine(), "date": datetime.date.today().isoformat(), "how": how,
                  "runs": []}
    for what, ranks, transport, sizes in suite:
        seconds = measure(options, what, ranks, transport, sizes)
        if not any(seconds.values()):
            print(f"{what}, {ranks} ranks, {transport}: no table, as no program could measure it", file=sys.stderr)
            continue
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
