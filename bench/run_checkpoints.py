#!/usr/bin/env python3
"""What checkpoints cost the steps: a GPT of 42 million parameters with AdamW, whose checkpoint has 500 MB.

    bench/run_checkpoints.py [--build build] [--every 50] [--steps 150] [--rounds 3] [--path DIR-or-s3://…]

Every round trains once without checkpoints on the way and once with one every `--every` steps, one rank. A run's
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

SKIPPED = 3  # first steps: memory, kernels


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--path", default="", help="checkpoint.path (default: the run's folder)")
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
    command = [pathlib.Path(options.build) / "bin" / "trireme", "train", "configs/gpt-nano.toml", "--json",
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


def main():
    options = parse()
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


if __name__ == "__main__":
    main()
