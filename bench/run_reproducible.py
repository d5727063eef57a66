#!/usr/bin/env python3
"""What the same bits on any number of ranks cost: a step with train.reproducible = true against false.

    bench/run_reproducible.py [--build build] [--ranks 2 3 4] [--rounds 3] [--steps 12] [--json FILE]

The GPT of bench/gpt.toml, parallel.sync = plain. "same": 12 micro-batches of one sequence, whatever the ranks;
"one each": one micro-batch of two sequences a rank. False adds a rank's leaves to one running sum and sends one
term a rank; true keeps the tree sum's open nodes and, where ranks are no power of two, sends more terms (design/005).
Rounds take turns; a figure is the median of all steps but each run's first three."""
import pathlib
import statistics
import tempfile

import turns

SHAPES = ("same", "one each")


def parse():
    parser = turns.parser(__doc__, steps=12)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    return parser.parse_args()


def command(options, data, out, ranks, shape, reproducible):
    micro, total = (1, 12) if shape == "same" else (2, 2 * ranks)
    return turns.train(options, data, out, {"batch.global": total, "batch.micro": micro,
                                            "train.reproducible": str(reproducible).lower()}, ranks=ranks)


def measure(options):
    """(ranks, shape, reproducible) -> (step seconds, seconds of it blocked on communication) of every run"""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "headers.txt"
        turns.write_data(data)

        def commands(number):
            kinds = (True, False) if number % 2 else (False, True)
            return {(ranks, shape, kind): command(options, data, pathlib.Path(folder) / f"{number}-{ranks}-{shape}-{kind}",
                                                  ranks, shape, kind)
                    for ranks in options.ranks for shape in SHAPES for kind in kinds}

        for who, seconds, exposed, _ in turns.in_turns(options, commands):
            step = statistics.median(seconds)
            figures.setdefault(who, []).append((step, step * exposed))
    return figures


def main():
    options = parse()
    found = measure(options)
    figures = []
    rows = ["| ranks | micro-batches | step, reproducible | blocked | step, not | blocked | cost |",
            "|---:|---|---:|---:|---:|---:|---:|"]
    for ranks in options.ranks:
        for shape in SHAPES:
            own, free = ([statistics.median(column) for column in zip(*found[ranks, shape, kind])]
                         for kind in (True, False))
            figures.append({"ranks": ranks, "shape": shape, "reproducible": own, "free": free})
            rows.append(f"| {ranks} | {shape} | {own[0]:.3f} s | {own[1]:.3f} s | {free[0]:.3f} s | {free[1]:.3f} s | "
                        f"{own[0] / free[0] - 1:+.1%} |")
    turns.finish(options, rows, figures)


if __name__ == "__main__":
    main()
