#!/usr/bin/env python3
"""A pipeline's training step against torch.distributed.pipelining's, and its bubble against the simulator's.

    bench/run_pipeline.py [--build build] [--python PYTHON_WITH_TORCH] [--rounds 3] [--steps 10] [--json FILE] [--picture FILE]

Two ranks with one thread each, the GPT of bench/gpt.toml (6 layers, 6 heads, 384 wide, T = 256), 8 sequences a step in
4 micro-batches, fp32. Every round runs each program once; a figure is the median of the steps of all rounds, without
each run's first three. The bubble is of the last step of a traced run: recorded, and as the simulator has it from the
recorded times of the passes. --picture draws these steps below one another; with --rounds 0 nothing else is done.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import run_gpt

HERE = pathlib.Path(__file__).resolve().parent
OWN = ("naive", "gpipe", "1f1b", "zb-h1")
PEERS = ("gpipe", "1f1b")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(HERE.parent / "build"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--picture", help="write an SVG of the traced steps here")
    return parser.parse_args()


def own_command(options, schedule, data, out):
    values = {"batch.global": 8, "batch.micro": 2, "parallel.pipeline": 2, "parallel.schedule": schedule,
              "train.steps": options.steps}
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    return [str(pathlib.Path(options.build) / "bin" / "trireme"), "train", str(HERE / "gpt.toml"), "--ranks", "2",
            "--data", str(data), "--out", str(out), "--json", *words]


def bubble(options, schedule, data, folder, pictures):
    """Shares of the last step that a rank waits: recorded, and simulated from the recorded passes; its picture."""
    out = folder / f"traced-{schedule}"
    run_gpt.run(own_command(options, schedule, data, out) + ["--trace", str(folder / "trace.json")])
    pictures.append((out / "passes.svg").read_text())
    text = subprocess.run([str(pathlib.Path(options.build) / "bin" / "trireme"), "show", "schedule", "--recorded",
                           str(out / "passes.jsonl")], capture_output=True, text=True, check=True).stdout
    return [float(share) for share in re.findall(r"bubble +([0-9.]+) %", text)][-2:]


def stacked(pictures):
    """SVGs below one another."""
    sizes = [[float(number) for number in re.search(r'width="([0-9.]+)" height="([0-9.]+)"', one).groups()] for one in pictures]
    width, height = max(size[0] for size in sizes), sum(size[1] for size in sizes)
    parts, top = [], 0.0
    for picture, size in zip(pictures, sizes):
        parts.append(picture.replace("<svg ", f'<svg y="{top:g}" ', 1))
        top += size[1]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}">\n<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>\n'
            + "".join(parts) + "</svg>\n")


def measure(options):
    figures = {}
    pictures = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = folder / "data"
        run_gpt.write_data(data)
        for number in range(options.rounds):
            commands = {f"trireme {one}": own_command(options, one, data, folder / f"run-{one}-{number}") for one in OWN}
            commands |= {f"torch {one}": [options.python, str(HERE / "peers" / "torch_pipeline.py"), "--data", str(data),
                                          "--schedule", one, "--steps", str(options.steps)] for one in PEERS}
            for who, command in commands.items():
                print(f"round {number + 1} of {options.rounds}: {who}", file=sys.stderr, flush=True)
                seconds, _, loss = run_gpt.run(command)
                figure = figures.setdefault(who, {"steps": [], "loss": loss})
                figure["steps"] += seconds
        for one in OWN:
            shares = bubble(options, one, data, folder, pictures)
            figures.setdefault(f"trireme {one}", {"steps": []})["bubble"] = shares
    if options.picture:
        pathlib.Path(options.picture).write_text(stacked(pictures))
    for figure in figures.values():
        figure["median"] = statistics.median(figure["steps"]) if figure["steps"] else float("nan")
    return figures


def table(figures):
    rows = ["| schedule | Trireme, step | bubble, recorded | simulated | torch.distributed.pipelining | its / Trireme |",
            "|---|---:|---:|---:|---:|---:|"]
    for one in OWN:
        own, peer = figures[f"trireme {one}"], figures.get(f"torch {one}")
        theirs = f"{peer['median']:.3f} s | {peer['median'] / own['median']:.2f}x" if peer else "| "
        recorded, simulated = own["bubble"]
        rows.append(f"| {one} | {own['median']:.3f} s | {recorded:.1f} % | {simulated:.1f} % | {theirs} |")
    return "\n".join(rows)


def main():
    options = parse()
    figures = measure(options)
    print(table(figures))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
