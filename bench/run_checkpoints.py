#!/usr/bin/env python3
"""What checkpoints cost the steps: a GPT of 42 million parameters with AdamW, whose checkpoint has 500 MB.

    bench/run_checkpoints.py [--build build] [--every 50] [--steps 150] [--rounds 3] [--path DIR-or-s3://…]
    bench/run_checkpoints.py --rates 1024 [--rounds 3] [--path DIR]

--rates MIB: the rates of a checkpoint of that size instead, which bench/checkpoint/checkpoint_bench.cc measures. Two ranks
save it, through rank 0 and each its own shards; three ranks load it, a third each; and the same files are read as `dd` reads
them. Before it is read, a file leaves the system's cache.

Otherwise every round trains once without checkpoints on the way and once with one every `--every` steps, one rank. A run's
time is that from the end of the third step to the end of the last one; the last checkpoint, which both runs write after their
last step, is not in it. Printed: the median of the rounds' differences, in all and for one save. Processor time is that of the
whole process: it says what a save costs also where other programs disturb the clock.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import turns

SKIPPED = 3  # first steps: memory, kernels


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(turns.HERE.parent / "build"))
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--path", default="", help="checkpoint.path (default: the run's folder)")
    parser.add_argument("--rates", type=int, metavar="MIB", help="save and load a checkpoint of this size")
    return parser.parse_args()


def train(options, folder, every, number):
    """Seconds from step SKIPPED to the last one, as lines come; the process's processor time; a checkpoint's bytes."""
    run = folder / f"run{number}"
    assignments = ["model.layers=6", "model.heads=12", "model.width=768", "model.block=32", "batch.global=2",
                   "batch.micro=1", f"train.steps={options.steps}", "train.validate_every=0",
                   "train.validate_sequences=1", "train.sample_bytes=0", f"checkpoint.every={every}",
                   "checkpoint.keep=1"]
    if options.path:
        assignments.append(f"checkpoint.path={options.path}/{folder.name}-{number}")
    command = [pathlib.Path(options.build) / "bin" / "trireme", "train", turns.HERE.parent / "configs" / "gpt-nano.toml", "--json",
               "--out", run]
    for assignment in assignments:
        command += ["--set", assignment]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    began = ended = 0.0
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] != "step":
            continue
        if event["step"] == SKIPPED:
            began = time.monotonic()
        ended = time.monotonic()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"status {status}: {command}")
    files = (run / "checkpoint").glob("step-*/*")
    size = sum(path.stat().st_size for path in files)
    shutil.rmtree(run)
    return ended - began, usage.ru_utime + usage.ru_stime, size


def launched(options, ranks, *words):
    """The bench's line, on `ranks` ranks."""
    programs = pathlib.Path(options.build) / "bin"
    done = subprocess.run([programs / "trireme", "launch", "-n", str(ranks), "--only-rank", "0", "--bind", "none", "--",
                           programs / "bench.checkpoint", *map(str, words)],
                          capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(next(line[line.index("{"):] for line in done.stdout.splitlines() if "{" in line))


def rates(options):
    subprocess.run(["ninja", "-C", options.build, "bench.checkpoint", "trireme"], check=True, capture_output=True)
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
    print(f"{turns.machine()}, load {os.getloadavg()[0]:.1f}; medians of {options.rates} MiB: " +
          ", ".join(f"{what} {statistics.median(row[what] for row in rows):.0f} MB/s" for what in rows[0]))


def main():
    options = parse()
    if options.rates:
        return rates(options)
    saves = (options.steps - 1) // options.every
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for number in range(options.rounds):
            without, cpu_without, size = train(options, folder, 0, 2 * number)
            beside, cpu_beside, _ = train(options, folder, options.every, 2 * number + 1)
            rows.append((without, beside - without, cpu_without, cpu_beside - cpu_without))
            print(f"round {number + 1}: {without:.2f} s ({cpu_without:.2f} s of processor) without, {beside:.2f} s "
                  f"({cpu_beside:.2f} s) with {saves} saves of {size / 1e6:.0f} MB", flush=True)
    wall, cost, cpu, cpu_cost = (statistics.median(column) for column in zip(*rows))
    print(f"a step takes {1000 * wall / (options.steps - SKIPPED):.0f} ms; {saves} saves cost {cost:.2f} s, "
          f"{100 * cost / wall:.1f} % of the steps' time, and {cpu_cost:.2f} s of processor, "
          f"{100 * cpu_cost / cpu:.1f} %; one save {cpu_cost / saves:.2f} s of processor")
    return None


if __name__ == "__main__":
    main()
