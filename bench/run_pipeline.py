#!/usr/bin/env python3
"""A pipeline's training step against torch.distributed.pipelining's, and its bubble against the simulator's.

    bench/run_pipeline.py [--build build] [--python PYTHON_WITH_TORCH] [--rounds 3] [--steps 10] [--json FILE] [--picture FILE]

Two ranks with one thread each, the GPT of bench/gpt.toml (6 layers, 6 heads, 384 wide, T = 256), 8 sequences a step in
4 micro-batches, fp32. Every round runs each program once; a figure is the median of the steps of all rounds, without
each run's first three. The bubble is of the last step of a traced run: recorded, and as the simulator has it from the
recorded times of the passes. --picture draws these steps below one another; with --rounds 0 nothing else is done.
"""
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import turns

OWN = ("naive", "gpipe", "1f1b", "zb-h1")
PEERS = ("gpipe", "1f1b")


def parse():
    parser = turns.parser(__doc__, least_rounds=0)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--picture", type=turns.new_file, help="write an SVG of the traced steps here")
    return parser.parse_args()


def own_command(options, schedule, data, out):
    return turns.train(options, data, out, {"batch.global": 8, "batch.micro": 2, "parallel.pipeline": 2,
                                            "parallel.schedule": schedule})


def commands(options, data, out):
    found = {f"trireme {one}": own_command(options, one, data, f"{out}-{one}") for one in OWN}
    return found | {f"torch {one}": [options.python, str(turns.HERE / "peers" / "torch_pipeline.py"), "--data", str(data),
                                     "--schedule", one, "--steps", str(options.steps)] for one in PEERS}


def bubble(options, schedule, data, folder, pictures):
    """Shares of the last step that a rank waits: recorded, and simulated from the recorded passes; its picture."""
    out = folder / f"traced-{schedule}"
    turns.run(options, own_command(options, schedule, data, out) + ["--trace", str(folder / "trace.json")])
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
        turns.write_data(data)
        for who, seconds, _, loss in turns.in_turns(options, lambda number: commands(options, data, folder / f"run-{number}")):
            figures.setdefault(who, {"steps": [], "loss": loss})["steps"] += seconds
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
    return rows


def main():
    options = parse()
    if options.rounds > 0:
        turns.need_torch(options.python)
    figures = measure(options)
    turns.finish(options, table(figures), figures)


if __name__ == "__main__":
    main()
