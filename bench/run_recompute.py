#!/usr/bin/env python3
"""What recomputation and a file for activations cost in time: the step of bench/gpt.toml under each memory.recompute,
one rank.

    bench/run_recompute.py [--build build] [--rounds 3] [--steps 8] [--policies none selective every-2 full none@DIR]
                           [--json FILE]

A policy with @DIR has memory.offload_activations = DIR besides.
4 sequences of 256 bytes in one micro-batch, fp32. What it saves in bytes is counted by
trireme/strategy/recompute_memory_test.cc, and predicted by the plan, whose figure stands beside the time. Policies
take turns; a figure is the median of all steps but each run's first three."""
import json
import pathlib
import statistics
import subprocess
import tempfile

import turns


def parse():
    parser = turns.parser(__doc__, steps=8)
    parser.add_argument("--policies", nargs="+", default=["none", "selective", "every-2", "full"])
    return parser.parse_args()


def values_of(policy):
    recompute, _, folder = policy.partition("@")
    return {"batch.global": 4, "batch.micro": 4, "memory.recompute": recompute, "memory.offload_activations": folder}


def measure(options):
    """policy -> predicted bytes of activations, median seconds of a step"""
    steps = {policy: [] for policy in options.policies}
    planned = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = folder / "headers.txt"
        turns.write_data(data)
        for policy in options.policies:
            plan = subprocess.run(turns.trireme(options, "plan", data, values_of(policy), ranks=1), stdout=subprocess.PIPE,
                                  text=True, check=True)
            planned[policy] = json.loads(plan.stdout)["predicted_activation_bytes"]
        for policy, seconds, _, _ in turns.in_turns(options, lambda number: {
                policy: turns.train(options, data, folder / f"run-{number}-{place}", values_of(policy), ranks=1)
                for place, policy in enumerate(options.policies)}):
            steps[policy] += seconds
    return {policy: (planned[policy], statistics.median(steps[policy])) for policy in options.policies}


def main():
    options = parse()
    figures = measure(options)
    first_bytes, first_step = figures[options.policies[0]]
    rows = ["| memory.recompute | activations, planned | saved | step | more time |", "|---|---:|---:|---:|---:|"]
    for policy, (planned, step) in figures.items():
        rows.append(f"| {policy} | {planned / 1e6:.1f} MB | {1 - planned / first_bytes:.0%} | {step:.3f} s | "
                    f"{step / first_step - 1:+.0%} |")
    turns.finish(options, rows, [{"policy": policy, "bytes": planned, "step": step}
                                 for policy, (planned, step) in figures.items()])


if __name__ == "__main__":
    main()
