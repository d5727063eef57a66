#!/usr/bin/env python3
"""What recomputation and a file for activations cost in time: the step of bench/gpt.toml under each memory.recompute,
one rank.

    bench/run_recompute.py [--build build] [--rounds 3] [--steps 8] [--policies none selective every-2 full none@DIR]
                           [--json FILE]

A policy with @DIR has memory.offload_activations = DIR besides.
4 sequences of 256 bytes in one micro-batch, fp32. What it saves in bytes is counted by
trireme/parallel/recompute_memory_test.cc, and predicted by the plan, whose figure stands beside the time. Policies
take turns; a figure is the median of all steps but each run's first three."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import run_gpt

HERE = pathlib.Path(__file__).resolve().parent


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(HERE.parent / "build"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--policies", nargs="+", default=["none", "selective", "every-2", "full"])
    parser.add_argument("--json", help="write the figures here")
    return parser.parse_args()


def command(options, data, policy, verb, *more):
    recompute, _, folder = policy.partition("@")
    keys = {"batch.global": 4, "batch.micro": 4, "train.steps": options.steps, "memory.recompute": recompute,
            "memory.offload_activations": folder}
    words = [str(pathlib.Path(options.build) / "bin" / "trireme"), verb, str(HERE / "gpt.toml"), "--ranks", "1",
             "--data", str(data), "--json", *more]
    return words + [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def main():
    options = parse()
    steps = {policy: [] for policy in options.policies}
    planned = {}
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "headers.txt"
        run_gpt.write_data(data)
        for policy in options.policies:
            plan = subprocess.run(command(options, data, policy, "plan"), stdout=subprocess.PIPE, text=True, check=True)
            planned[policy] = json.loads(plan.stdout)["predicted_activation_bytes"]
        for number in range(options.rounds):
            for policy in options.policies:
                print(f"round {number + 1} of {options.rounds}: {policy}", file=sys.stderr, flush=True)
                out = ["--out", str(pathlib.Path(folder) / f"run-{number}-{policy.replace('/', '_')}")]
                steps[policy] += run_gpt.run(command(options, data, policy, "train", *out))[0]
    median = {policy: statistics.median(seconds) for policy, seconds in steps.items()}
    first = options.policies[0]
    print("| memory.recompute | activations, planned | saved | step | more time |")
    print("|---|---:|---:|---:|---:|")
    for policy in options.policies:
        print(f"| {policy} | {planned[policy] / 1e6:.1f} MB | {1 - planned[policy] / planned[first]:.0%} | "
              f"{median[policy]:.3f} s | {median[policy] / median[first] - 1:+.0%} |")
    if options.json:
        rows = [{"policy": policy, "bytes": planned[policy], "step": median[policy]} for policy in options.policies]
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
