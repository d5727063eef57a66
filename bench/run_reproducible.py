#!/usr/bin/env python3
"""What the same bits on any number of ranks cost: a step with train.reproducible = true against false.

    bench/run_reproducible.py [--build build] [--ranks 2 3 4] [--rounds 3] [--steps 12] [--json FILE]

The GPT of bench/gpt.toml, parallel.sync = plain. "same": 12 micro-batches of one sequence, whatever the ranks;
"one each": one micro-batch of two sequences a rank. False adds a rank's leaves to one running sum and sends one
term a rank; true keeps the tree sum's open nodes and, where ranks are no power of two, sends more terms (design/005).
Rounds take turns; a figure is the median of all steps but each run's first three."""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import run_gpt

HERE = pathlib.Path(__file__).resolve().parent


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(HERE.parent / "build"))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", help="write the figures here")
    return parser.parse_args()


def command(options, data, out, ranks, shape, reproducible):
    micro, total = (1, 12) if shape == "same" else (2, 2 * ranks)
    keys = {"batch.global": total, "batch.micro": micro, "train.steps": options.steps,
            "train.reproducible": str(reproducible).lower()}
    words = [str(pathlib.Path(options.build) / "bin" / "trireme"), "train", str(HERE / "gpt.toml"),
             "--ranks", str(ranks), "--data", str(data), "--out", str(out), "--json"]
    return words + [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def measure(options):
    """(ranks, shape, reproducible) -> (step seconds, seconds of it blocked on communication) of every run"""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "headers.txt"
        run_gpt.write_data(data)
        for number in range(options.rounds):
            for ranks in options.ranks:
                for shape in ("same", "one each"):
                    for reproducible in (True, False) if number % 2 else (False, True):
                        print(f"round {number + 1} of {options.rounds}: {ranks} ranks, {shape}, {reproducible}",
                              file=sys.stderr, flush=True)
                        out = pathlib.Path(folder) / f"run-{number}-{ranks}-{shape}-{reproducible}"
                        seconds, exposed, _ = run_gpt.run(command(options, data, out, ranks, shape, reproducible))
                        step = statistics.median(seconds)
                        figures.setdefault((ranks, shape, reproducible), []).append((step, step * exposed))
    return figures


def main():
    options = parse()
    figures = measure(options)
    rows = []
    print("| ranks | micro-batches | step, reproducible | blocked | step, not | blocked | cost |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for ranks in options.ranks:
        for shape in ("same", "one each"):
            own, free = ([statistics.median(column) for column in zip(*figures[ranks, shape, kind])]
                         for kind in (True, False))
            rows.append({"ranks": ranks, "shape": shape, "reproducible": own, "free": free})
            print(f"| {ranks} | {shape} | {own[0]:.3f} s | {own[1]:.3f} s | {free[0]:.3f} s | {free[1]:.3f} s | "
                  f"{own[0] / free[0] - 1:+.1%} |")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
