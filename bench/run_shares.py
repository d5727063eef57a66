#!/usr/bin/env python3
"""How much batch.shares = "auto" takes off a step if one rank shares its core with other programs.

    bench/run_shares.py [--build build] [--hogs 1 2] [--rounds 3] [--steps 24] [--json FILE]

GPT of bench/gpt.toml with 64 positions, 16 micro-batches of one sequence, 2 ranks on 2 cores (of more only the first two
are used), which `trireme train` pins. `hogs` processes that only count run on the second one, so that the rank there is that
much slower. Every round trains with equal shares and with auto; the median of the steps after the first 12 counts, when shares have changed.
All runs end with the same loss, or the bench fails."""
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import turns

SETTLED = 12


def parse():
    parser = turns.parser(__doc__, steps=24, warm_up=SETTLED)
    parser.add_argument("--hogs", type=turns.at_least(0), nargs="+", default=[1, 2], help="programs beside the slow rank")
    return parser.parse_args()


@contextlib.contextmanager
def hogs(options, count):
    """`count` processes that compute on the last core, for as long as the context and this process live."""
    core = max(os.sched_getaffinity(0))
    command = [sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"]
    running = [subprocess.Popen(turns.prioritised(options, command), preexec_fn=lambda: os.sched_setaffinity(0, {core}))
               for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def events(options, data, out, shares):
    values = {"batch.global": 16, "batch.micro": 1, "model.block": 64, "batch.shares": shares}
    return turns.events_of(options, turns.train(options, data, out, values))


def measure(options):
    """hogs -> {"equal" or "auto": step seconds by round}, and the shares and sentences of the last auto run"""
    found, shares, losses = {}, {}, set()
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "headers.txt"
        turns.write_data(data)
        for number in range(options.rounds):
            for count in options.hogs:
                for kind in ("equal", "auto"):
                    print(f"round {number + 1} of {options.rounds}: {count} hogs, {kind}", file=sys.stderr, flush=True)
                    with hogs(options, count):
                        all_events = events(options, data, pathlib.Path(folder) / f"{number}-{count}-{kind}", kind)
                    steps = [one for one in all_events if one["event"] == "step"]
                    losses.add(steps[-1]["loss"])
                    settled = [one["step_seconds"] for one in steps[SETTLED:]]
                    found.setdefault(count, {}).setdefault(kind, []).append(statistics.median(settled))
                    shares.setdefault(count, []).extend(one["shares"] for one in all_events if one["event"] == "shares")
    if len(losses) != 1:
        sys.exit(f"the runs end with different losses: {losses}")
    return found, shares


def main():
    options = parse()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("this bench needs two cores: one of a rank alone, and one that a rank shares with other programs")
    os.sched_setaffinity(0, cores[:2])
    found, shares = measure(options)
    rows = ["| programs on the core | step, equal shares | step, auto | auto / equal | shares |", "|---:|---:|---:|---:|---|"]
    figures = []
    for count, kinds in found.items():
        equal, own = statistics.median(kinds["equal"]), statistics.median(kinds["auto"])
        figures.append({"hogs": count, "equal": kinds["equal"], "auto": kinds["auto"], "shares": shares[count]})
        changed = ", ".join(":".join(map(str, one)) for one in shares[count]) or "equal"
        rows.append(f"| {count} | {equal:.3f} s | {own:.3f} s | {own / equal:.2f} | {changed} |")
    turns.finish(options, rows, figures)


if __name__ == "__main__":
    main()
