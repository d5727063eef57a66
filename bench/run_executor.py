#!/usr/bin/env python3
"""What the pipeline executor itself takes: 8 ranks whose passes sleep, against the simulator.

    bench/run_executor.py [--build build] [--ranks 8] [--micro 16] [--times 4,4,4] [--elements 65536]
                          [--schedules gpipe 1f1b zb-h1] [--rounds 3] [--steps 6] [--json FILE]

bench/pipeline/executor_bench.cc says what is measured. Every round runs each schedule once; a figure is the median of
the rounds' medians. Asked: a bubble within 3 percentage points of the simulated one, at most 20 us an action.
"""
import pathlib
import statistics

import turns


def parse():
    parser = turns.parser(__doc__, steps=6, warm_up=0)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--micro", type=int, default=16)
    parser.add_argument("--times", default="4,4,4", help="F,I,W in milliseconds")
    parser.add_argument("--elements", type=int, default=65536, help="floats of a parcel")
    parser.add_argument("--schedules", nargs="+", default=["gpipe", "1f1b", "zb-h1"])
    return parser.parse_args()


def run(options, schedule):
    """The line that rank 0 prints."""
    programs = pathlib.Path(options.build) / "bin"
    line, = turns.events_of(options, [
        programs / "trireme", "launch", "-n", options.ranks, "--only-rank", "0", "--bind", "none", "--",
        programs / "bench.executor", schedule, "--micro", options.micro, "--times", options.times, "--elements", options.elements,
        "--steps", options.steps])
    return {key: value for key, value in line.items() if key != "at"}


def measure(options):
    turns.build(options, "bench.executor", "trireme")
    rounds = [{schedule: run(options, schedule) for schedule in options.schedules} for _ in range(options.rounds)]
    figures = {}
    for schedule in options.schedules:
        lines = [one[schedule] for one in rounds]
        figures[schedule] = {key: statistics.median(line[key] for line in lines) if isinstance(value, float) else value
                             for key, value in lines[0].items()}
    return figures


def table(figures):
    rows = ["| schedule | bubble, measured | simulated | apart | step | simulated | own time an action | processor time an action |",
            "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for schedule, one in figures.items():
        apart = 100 * (one["bubble"] - one["simulated_bubble"])
        rows.append(f"| {schedule} | {100 * one['bubble']:.1f} % | {100 * one['simulated_bubble']:.1f} % | {apart:.1f} | "
                    f"{1e3 * one['seconds']:.1f} ms | {1e3 * one['simulated_seconds']:.1f} ms | {one['own_us']:.1f} us | "
                    f"{one['processor_us']:.1f} us |")
    return rows


def main():
    options = parse()
    figures = measure(options)
    turns.finish(options, table(figures), figures)


if __name__ == "__main__":
    main()
