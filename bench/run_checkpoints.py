#!/usr/bin/env python3
"""What checkpoints cost the steps: a GPT of 42 million parameters with AdamW, whose checkpoint has 500 MB.

    bench/run_checkpoints.py [--build build] [--every 50] [--steps 150] [--rounds 3] [--path DIR-or-s3://…] [--json FILE]
    bench/run_checkpoints.py --rates 1024 [--rounds 3] [--path DIR] [--json FILE]

--rates MIB: the rates of a checkpoint of that size instead, which bench/checkpoint/checkpoint_bench.cc measures. Two ranks
save it, through rank 0 and each its own shards; three ranks load it, a third each; and the same files are read as `dd` reads
them. Before it is read, a file leaves the system's cache.

Otherwise every round trains once without checkpoints on the way and once with one every `--every` steps, one rank. A run's
time is that from the end of the third step to the end of the last one; the last checkpoint, which both runs write after their
last step, is not in it. Printed: the median of the rounds' differences, in all and for one save. Processor time is that of the
whole process: it says what a save costs also where other programs disturb the clock.
"""
import os
import pathlib
import resource
import shutil
import statistics
import sys
import tempfile

import turns

SHAPE = {"model.layers": 6, "model.heads": 12, "model.width": 768, "model.block": 32, "batch.global": 2, "batch.micro": 1,
         "train.validate_every": 0, "train.validate_sequences": 1, "train.sample_bytes": 0, "checkpoint.keep": 1}


def parse():
    parser = turns.parser(__doc__, steps=150)
    parser.add_argument("--every", type=turns.at_least(1), default=50)
    parser.add_argument("--path", default="", help="checkpoint.path (default: the run's folder)")
    parser.add_argument("--rates", type=turns.at_least(1), metavar="MIB", help="save and load a checkpoint of this size")
    options = parser.parse_args()
    if options.rates and "://" in options.path:
        parser.error(f"--rates reads files, and {options.path} is no folder")
    if not options.rates and options.every >= options.steps:
        parser.error(f"no checkpoint is due before the last of {options.steps} steps with --every {options.every}")
    return options


def train(options, data, folder, every, number):
    """Seconds between the ends of the last of the first steps and of the last one; the process's processor time; the bytes of
    each checkpoint between them."""
    run = folder / f"run{number}"
    path = f"{options.path}/{folder.name}-{number}" if options.path else ""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    events = turns.events_of(options, turns.train(
        options, data, run, SHAPE | {"checkpoint.every": every, "checkpoint.path": path}, ranks=1, config="configs/gpt-nano.toml"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    for used in filter(None, (run, path.removeprefix("file://"))):
        shutil.rmtree(used, ignore_errors=True)  # not what is behind an s3:// address
    ends = {event["step"]: event["at"] for event in events if event["event"] == "step"}
    return (ends[options.steps] - ends[turns.WARM_UP],
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            [event["written_bytes"] for event in events
             if event["event"] == "checkpoint" and event["step"] < options.steps])


def launched(options, ranks, *words):
    """The bench's line, on `ranks` ranks."""
    programs = pathlib.Path(options.build) / "bin"
    line, = turns.events_of(options, [programs / "trireme", "launch", "-n", ranks, "--only-rank", "0", "--bind", "none", "--",
                                      programs / "bench.checkpoint", *words])
    return line


def rates(options):
    turns.build(options, "bench.checkpoint", "trireme")
    rows = []
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=options.path or None) as name:
            gathered, own = pathlib.Path(name) / "gathered", pathlib.Path(name) / "own"
            row = {"save through rank 0": launched(options, 2, "save", gathered, options.rates)}
            shutil.rmtree(gathered)
            row["save in parallel"] = launched(options, 2, "save", own, options.rates, "own")
            row["load by 3 ranks"] = launched(options, 3, "load", own, options.rates)
            row["read of the same files"] = launched(options, 1, "read", own)
        rows.append({what: one["bytes"] / one["seconds"] / 1e6 for what, one in row.items()})
        print(f"round {number + 1}: " + ", ".join(f"{what} {rate:.0f} MB/s" for what, rate in rows[-1].items()), flush=True)
    medians = {what: statistics.median(row[what] for row in rows) for what in rows[0]}
    print(f"load {os.getloadavg()[0]:.1f}")
    turns.finish(options, [f"medians of {options.rates} MiB: " +
                           ", ".join(f"{what} {rate:.0f} MB/s" for what, rate in medians.items())], rows)


def costs(options):
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = folder / "headers.txt"
        turns.write_data(data)
        for number in range(options.rounds):
            without, cpu_without, _ = train(options, data, folder, 0, 2 * number)
            beside, cpu_beside, saved = train(options, data, folder, options.every, 2 * number + 1)
            if not saved:
                sys.exit(f"no checkpoint was written whole before the last of {options.steps} steps: give more --steps")
            rows.append((without, beside - without, cpu_without, cpu_beside - cpu_without, len(saved)))
            print(f"round {number + 1}: {without:.2f} s ({cpu_without:.2f} s of processor) without, {beside:.2f} s "
                  f"({cpu_beside:.2f} s) with {len(saved)} saves of {max(saved) / 1e6:.0f} MB", flush=True)
    wall, cost, cpu, cpu_cost, saves = (statistics.median(column) for column in zip(*rows))
    turns.finish(options, [
        f"a step takes {1000 * wall / (options.steps - turns.WARM_UP):.0f} ms; {saves:.0f} saves cost {cost:.2f} s, "
        f"{100 * cost / wall:.1f} % of the steps' time, and {cpu_cost:.2f} s of processor, "
        f"{100 * cpu_cost / cpu:.1f} %; one save {cpu_cost / saves:.2f} s of processor"], rows)


def main():
    options = parse()
    rates(options) if options.rates else costs(options)


if __name__ == "__main__":
    main()
