#!/usr/bin/env python3
"""Parameter servers: exchanges against the memory's limit and against gRPC, torch.distributed.rpc and TensorFlow; a slow
worker; more processes than cores.

    bench/run_servers.py [--build build] [--python PYTHON_WITH_TORCH] [--tensorflow PYTHON] [--rounds 3] [--seconds 2]
                         [--parts exchange straggler oversubscribed] [--minutes 1] [--no-build] [--priority] [--json FILE]

An exchange is a push of a gradient of 64 MiB and a pull of the new weights, by each of two workers from one server; SGD.
bench/ps/servers_bench.cc says where it begins and ends, bench/ps/yardstick.cc what the limit is. Programs take turns; a figure
is the median of the rounds' medians. gRPC sends a gradient as one message and in pieces of 1 and 4 MiB: its best counts.
bench/peers/tensorflow_servers.py --install makes TensorFlow's environment. A peer that is not there is left out."""
import pathlib
import statistics
import sys

import turns
from peers import tensorflow_servers

PIECES = (0, 1 << 20, 4 << 20)
# goal: (its row, the row that it is compared with, least ratio of the second's time over the first's)
GOALS = [("shm, asynchronous", "limit, asynchronous", .6), ("shm, synchronous", "limit, synchronous", .6),
         ("shm, asynchronous", "gRPC, unix socket", 5), ("shm, asynchronous", "torch rpc, shared memory", 3),
         ("shm, asynchronous", "TensorFlow", 3), ("tcp, asynchronous", "gRPC, tcp", 1.5)]


def parse():
    parser = turns.parser(__doc__, steps=None)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tensorflow", default=str(tensorflow_servers.FOLDER / "bin" / "python"))
    parser.add_argument("--seconds", type=turns.positive, default=2)
    parser.add_argument("--bytes", type=turns.at_least(4), default=64 << 20)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--minutes", type=turns.positive, default=1, help="of the part oversubscribed")
    return parser.parse_args()


def run(options, command, seconds):
    """The JSON lines of a program that measures for so long."""
    return turns.events_of(options, command, 300 + 20 * seconds)


def program(options, name):
    return str(pathlib.Path(options.build) / "bin" / name)


def own(options, *words, workers=2, servers=1, seconds=None):
    return [program(options, "trireme"), "launch", "--workers", str(workers), "--servers", str(servers), "--bind", "none", "--",
            program(options, "bench.servers"), "--seconds", str(seconds or options.seconds), *words]


def there(python, module, how):
    found = turns.has_module(python, module)
    if not found:
        print(f"{python} has no {module}: left out ({how})", file=sys.stderr)
    return found


def exchanges(options):
    """row -> command"""
    size = ["--bytes", str(options.bytes)]
    time = ["--seconds", str(options.seconds)]
    found = {}
    for mode, about in (("async", "asynchronous"), ("sync", "synchronous")):
        found[f"limit, {about}"] = [program(options, "bench.servers_yardstick"), str(options.bytes), "2", str(options.seconds), mode]
        for transport in ("shm", "tcp"):
            found[f"{transport}, {about}"] = own(options, *size, "--mode", mode, "--transport", transport)
    found["limit, tcp"] = [program(options, "bench.servers_yardstick"), str(options.bytes), "2", str(options.seconds), "tcp"]
    found["shm, asynchronous, the server looks for NaN"] = own(options, *size, "--check")
    found["shm, asynchronous, from and to other memory"] = own(options, *size, "--copies")
    found["shm, asynchronous, momentum, predicted"] = own(options, *size, "--optimizer", "momentum", "--predict")
    for transport, about in (("unix", "unix socket"), ("tcp", "tcp")):
        for piece in PIECES:
            found[f"gRPC, {about}, {piece}"] = [program(options, "bench.grpc"), *size, *time, "--piece", str(piece), "--transport",
                                                transport]
    if there(options.python, "torch.distributed.rpc", "--python names a Python with PyTorch"):
        for transport, about in (("shm", "shared memory"), ("tcp", "tcp")):
            found[f"torch rpc, {about}"] = [options.python, str(turns.HERE / "peers" / "torch_rpc.py"), *size, *time,
                                            "--transport", transport]
    if there(options.tensorflow, "tensorflow", tensorflow_servers.HOW):
        found["TensorFlow"] = [options.tensorflow, str(turns.HERE / "peers" / "tensorflow_servers.py"), *size, *time]
    return found


def best_pieces(medians):
    """gRPC's rows without their pieces: the best of them."""
    found = {}
    for row, seconds in medians.items():
        name = row.rsplit(", ", 1)[0] if row.startswith("gRPC") else row
        found[name] = min(seconds, found.get(name, seconds))
    return found


def measure_exchanges(options):
    times = {}
    commands = exchanges(options)
    for number in range(options.rounds):
        for row, command in commands.items():
            print(f"round {number + 1} of {options.rounds}: {row}", file=sys.stderr, flush=True)
            for line in run(options, command, options.seconds):
                times.setdefault(row, []).append(line.get("median_seconds", line.get("seconds")))
    return best_pieces({row: statistics.median(many) for row, many in times.items()})


def exchange_tables(seconds, size):
    rows = ["| exchange of each of 2 workers | time | pushed and pulled, GB/s a worker |", "|---|---:|---:|"]
    rows += [f"| {row} | {1e3 * one:.1f} ms | {2 * size / one / 1e9:.2f} |" for row, one in seconds.items()]
    rows += ["", "| goal | seen | |", "|---|---:|---|"]
    for row, other, least in GOALS:
        if other not in seconds:
            continue
        ratio = seconds[other] / seconds[row]
        rows.append(f"| {row}: {least:g} times as fast as {other} | {ratio:.2f} | {'reached' if ratio >= least else 'missed'} |")
    return rows


MODES = (("synchronous", ["--mode", "sync"]), ("s = 4", ["--staleness", "4"]), ("asynchronous", ["--staleness", "-1"]))


def measure_straggler(options):
    """(kind of straggler, mode) -> steps a second of each worker"""
    figures = {}
    kinds = {"none": ["--work", "20,20,20,20"], "worker 3 always": ["--work", "20,20,20,100"],
             "one step in 50": ["--work", "20,20,20,20", "--hiccup", "0.02"]}
    for number in range(options.rounds):
        for kind, words in kinds.items():
            for mode, more in MODES:
                print(f"round {number + 1} of {options.rounds}: straggler {kind}, {mode}", file=sys.stderr, flush=True)
                lines = run(options, own(options, "--bytes", str(1 << 20), *words, *more, workers=4, seconds=max(4, options.seconds)),
                            options.seconds)
                figures.setdefault(f"{kind} | {mode}", []).append([line["per_second"] for line in sorted(lines, key=lambda one: one["worker"])])
    return {row: [statistics.median(many) for many in zip(*rounds)] for row, rounds in figures.items()}


def straggler_table(figures):
    rows = ["| a worker takes 5 times as long | mode | steps a second of workers 0 to 3 | of the first three, over those without a straggler |",
            "|---|---|---|---:|"]
    for row, rates in figures.items():
        base = figures["none | " + row.split(" | ")[1]]
        rows.append(f"| {row} | {', '.join(f'{rate:.1f}' for rate in rates)} | {sum(rates[:3]) / sum(base[:3]):.0%} |")
    return rows


def measure_oversubscribed(options):
    """Eight workers that compute for 20 ms between exchanges of 4 MiB, and two servers."""
    seconds = 60 * options.minutes
    lines = run(options, own(options, "--bytes", str(4 << 20), "--work", ",".join(["20"] * 8), "--spin", "--memory", workers=8,
                             servers=2, seconds=seconds), seconds)
    steps = [line["exchanges"] for line in lines]
    return {"seconds": seconds, "steps": sorted(steps), "longest_seconds": max(line["longest_seconds"] for line in lines),
            "grown_bytes": max(line["grown_bytes"] for line in lines)}


def oversubscribed_table(one):
    return ["| 8 workers and 2 servers for | steps of the slowest worker | of the fastest | longest exchange | memory grew by |",
            "|---|---:|---:|---:|---:|",
            f"| {one['seconds']:.0f} s | {one['steps'][0]} | {one['steps'][-1]} | {one['longest_seconds']:.2f} s | "
            f"{one['grown_bytes'] / 1e6:.1f} MB |"]


PARTS = {"exchange": (measure_exchanges, None), "straggler": (measure_straggler, straggler_table),
         "oversubscribed": (measure_oversubscribed, oversubscribed_table)}


def main():
    options = parse()
    if not options.no_build:
        turns.build(options, "bench.servers", "bench.servers_yardstick", "bench.grpc", "trireme")
    figures, rows = {}, []
    for part in options.parts:
        measure, table = PARTS[part]
        figures[part] = measure(options)
        rows += [*(table(figures[part]) if table else exchange_tables(figures[part], options.bytes)), ""]
    turns.finish(options, rows, figures)


if __name__ == "__main__":
    main()
