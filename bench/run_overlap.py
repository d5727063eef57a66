#!/usr/bin/env python3
"""How much of a step's communication backward hides, on TCP connections of a given rate.

    bench/run_overlap.py [--build build] [--rates 2.5e8 1e9] [--rounds 3] [--steps 8] [--json FILE]

GPT-2's smallest size over bytes (12 layers, 768 wide, T = 128; 85 million parameters), fp32, 2 ranks with one
thread each, 4 sequences a rank. Every round trains once with parallel.overlap = true and once with false, which
reduces the same buckets after backward. Hidden: 1 - blocked with overlap / blocked without, medians over all
steps but each run's first three. The kernel paces the connections (comm.rate: SO_MAX_PACING_RATE)."""
import statistics

import turns

OVERLAP = {"overlap": True, "after backward": False}


def parse():
    parser = turns.parser(__doc__, steps=8)
    parser.add_argument("--rates", type=turns.positive, nargs="+", default=[2.5e8, 5e8, 1e9], help="bytes a second")
    parser.add_argument("--sequences", type=int, default=4, help="of a rank, each of 128 tokens")
    return parser.parse_args()


def commands(options, data, out):
    """(rate, "overlap" or "after backward") -> command"""
    values = {"model.layers": 12, "model.heads": 12, "model.width": 768, "model.block": 128,
              "batch.global": 2 * options.sequences, "batch.micro": options.sequences, "comm.transport": "tcp"}
    return {(rate, name): turns.train(options, data, f"{out}-{rate}-{overlap}",
                                      values | {"comm.rate": rate, "parallel.overlap": str(overlap).lower()})
            for rate in options.rates for name, overlap in OVERLAP.items()}


def measure(options):
    """rate -> {"overlap" or "after backward": (step seconds, seconds of it blocked), medians over the rounds}"""
    found = {rate: {name: [] for name in OVERLAP} for rate in options.rates}
    for (rate, name), seconds, exposed, _ in turns.trainings(options, commands):
        step = statistics.median(seconds)
        found[rate][name].append((step, step * exposed))
    return {rate: {name: [statistics.median(column) for column in zip(*runs)] for name, runs in kinds.items()}
            for rate, kinds in found.items()}


def main():
    options = parse()
    rows = ["| bytes a second | step | blocked | step, reduced after backward | blocked | hidden |",
            "|---:|---:|---:|---:|---:|---:|"]
    figures = []
    for rate, median in measure(options).items():
        own, after = median["overlap"], median["after backward"]
        hidden = 1 - own[1] / after[1]
        figures.append({"rate": rate, "overlap": own, "after": after, "hidden": hidden})
        rows.append(f"| {rate:.3g} | {own[0]:.3f} s | {own[1]:.3f} s | {after[0]:.3f} s | {after[1]:.3f} s | {hidden:.0%} |")
    turns.finish(options, rows, figures)


if __name__ == "__main__":
    main()
