#!/usr/bin/env python3
"""How much of a step's communication backward hides, on TCP connections of a given rate.

    bench/run_overlap.py [--build build] [--rates 2.5e8 1e9] [--rounds 3] [--steps 8] [--json FILE]

GPT-2's smallest size over bytes (12 layers, 768 wide, T = 128; 85 million parameters), fp32, 2 ranks with one
thread each, 4 sequences a rank. Every round trains once with parallel.overlap = true and once with false, which
reduces the same buckets after backward. Hidden: 1 - blocked with overlap / blocked without, medians over all
steps but each run's first three. The kernel paces the connections (comm.rate: SO_MAX_PACING_RATE)."""
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
    parser.add_argument("--rates", type=float, nargs="+", default=[2.5e8, 5e8, 1e9], help="bytes a second")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--sequences", type=int, default=4, help="of a rank, each of 128 tokens")
    parser.add_argument("--json", help="write the figures here")
    return parser.parse_args()


def command(options, data, out, rate, overlap):
    keys = {"model.layers": 12, "model.heads": 12, "model.width": 768, "model.block": 128,
            "batch.global": 2 * options.sequences, "batch.micro": options.sequences,
            "train.steps": options.steps, "comm.transport": "tcp", "comm.rate": rate,
            "parallel.overlap": str(overlap).lower()}
    words = [str(pathlib.Path(options.build) / "bin" / "trireme"), "train", str(HERE / "gpt.toml"), "--ranks", "2",
             "--data", str(data), "--out", str(out), "--json"]
    return words + [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def measure(options):
    """rate -> {overlap: (step seconds, share of them blocked)}"""
    figures = {rate: {True: [], False: []} for rate in options.rates}
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "headers.txt"
        run_gpt.write_data(data)
        for number in range(options.rounds):
            for rate in options.rates:
                for overlap in (True, False):
                    print(f"round {number + 1} of {options.rounds}: {rate:.3g} B/s, "
                          f"{'overlap' if overlap else 'after backward'}", file=sys.stderr, flush=True)
                    out = pathlib.Path(folder) / f"run-{number}-{rate}-{overlap}"
                    seconds, exposed, _ = run_gpt.run(command(options, data, out, rate, overlap))
                    step = statistics.median(seconds)
                    figures[rate][overlap].append((step, step * exposed))
    return figures


def main():
    options = parse()
    figures = measure(options)
    print("| bytes a second | step | blocked | step, reduced after backward | blocked | hidden |")
    print("|---:|---:|---:|---:|---:|---:|")
    rows = []
    for rate, found in figures.items():
        median = {overlap: [statistics.median(column) for column in zip(*runs)] for overlap, runs in found.items()}
        hidden = 1 - median[True][1] / median[False][1]
        rows.append({"rate": rate, "overlap": median[True], "after": median[False], "hidden": hidden})
        print(f"| {rate:.3g} | {median[True][0]:.3f} s | {median[True][1]:.3f} s | {median[False][0]:.3f} s | "
              f"{median[False][1]:.3f} s | {hidden:.0%} |")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
