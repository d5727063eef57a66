#!/usr/bin/env python3
"""What elastic membership costs a training that loses nobody.

    bench/run_elastic.py [--build build] [--ranks 2] [--rounds 5] [--steps 400] [--json FILE]

configs/gpt-nano.toml. Every round trains plainly, with --elastic 1:RANKS, and, under zero1, without and with elastic and
copies of each rank's state in the other's memory (checkpoint.memory = 1). Cost: the ratio of a round's median steps - 1, the
median of the rounds. All runs of a strategy end with the same loss, or the bench fails."""
import statistics
import sys

import turns


def parse():
    parser = turns.parser(__doc__, rounds=5, steps=400)
    parser.add_argument("--ranks", type=turns.at_least(1), default=2)
    return parser.parse_args()


def commands(options, data, out):
    """(strategy, kind) -> command"""
    elastic = ["--elastic", f"1:{options.ranks}"]
    copies = elastic + ["--set", "checkpoint.memory=1"]
    kinds = {("plain", "as ever"): [], ("plain", "elastic"): elastic,
             ("zero1", "as ever"): [], ("zero1", "elastic"): elastic, ("zero1", "elastic, copies in memory"): copies}
    quiet = {"train.validate_every": 0, "checkpoint.every": 0}
    return {(strategy, kind): turns.train(options, data, f"{out}-{number}", quiet | {"parallel.sync": strategy}, *words,
                                          ranks=options.ranks, config="configs/gpt-nano.toml")
            for number, ((strategy, kind), words) in enumerate(kinds.items())}


def measure(options):
    """(strategy, kind) -> the median step of each round, in seconds"""
    found, losses = {}, {}
    for who, seconds, _, loss in turns.trainings(options, commands):
        found.setdefault(who, []).append(statistics.median(seconds))
        losses.setdefault(who[0], set()).add(loss)
    if any(len(one) != 1 for one in losses.values()):
        sys.exit(f"runs of one strategy end with different losses: {losses}")
    return found


def main():
    options = parse()
    found = measure(options)
    rows = ["| strategy | | step | cost |", "|---|---|---:|---:|"]
    figures = []
    for (strategy, kind), steps in found.items():
        base = found[strategy, "as ever"]
        cost = statistics.median(own / other for own, other in zip(steps, base)) - 1
        figures.append({"strategy": strategy, "kind": kind, "steps": steps, "cost": cost})
        rows.append(f"| {strategy} | {kind} | {1e3 * statistics.median(steps):.2f} ms | "
                    f"{'' if kind == 'as ever' else f'{cost:+.1%}'} |")
    turns.finish(options, rows, figures)


if __name__ == "__main__":
    main()
