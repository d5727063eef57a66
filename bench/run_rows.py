#!/usr/bin/env python3
"""Rows of an embedding table on a parameter server: a worker pulls some, and pushes their gradients.

    bench/run_rows.py [--build build] [--rows 10000000] [--width 16] [--shares 0.1,1,5] [--optimizer adagrad]
                      [--transports shm tcp] [--rounds 3] [--steps 10] [--json FILE]

bench/ps/row_bench.cc says what is measured. Every round runs each transport and share once; a figure is the median of the
rounds' medians. Asked: bytes in proportion to the touched rows (5 %), a million rows a second of processor time, pulls
and pushes together.
"""
import pathlib
import statistics

import turns


def parse():
    parser = turns.parser(__doc__, warm_up=0)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--shares", default="0.1,1,5", help="touched rows in a step, per cent of all")
    parser.add_argument("--optimizer", default="adagrad")
    parser.add_argument("--transports", nargs="+", default=["shm", "tcp"])
    return parser.parse_args()


def run(options, transport, share):
    line, = turns.events_of(options, [
        pathlib.Path(options.build) / "bin" / "bench.rows", "--transport", transport, "--rows", options.rows, "--width",
        options.width, "--share", share, "--steps", options.steps, "--optimizer", options.optimizer])
    return {key: value for key, value in line.items() if key != "at"}


def measure(options):
    turns.build(options, "bench.rows")
    runs = [(transport, share) for transport in options.transports for share in options.shares.split(",")]
    rounds = [[run(options, *one) for one in runs] for _ in range(options.rounds)]
    return [{key: statistics.median(line[key] for line in lines) if isinstance(value, float) else value
             for key, value in lines[0].items()} for lines in zip(*rounds)]


def table(figures):
    rows = ["| transport | touched | rows | a step | processor time, worker | server | rows/s | rows/s of a core | "
            "bytes a touched row |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for one in figures:
        rows.append(f"| {one['transport']} | {one['share']:g} % | {one['touched']:,} | {1e3 * one['wall_seconds']:.1f} ms | "
                    f"{1e3 * one['worker_seconds']:.1f} ms | {1e3 * one['server_seconds']:.1f} ms | "
                    f"{one['rows_a_second'] / 1e6:.2f} M | {one['rows_a_core_second'] / 1e6:.2f} M | "
                    f"{one['bytes_a_row']:.1f} |")
    return rows


def main():
    options = parse()
    figures = measure(options)
    turns.finish(options, table(figures), figures)


if __name__ == "__main__":
    main()
