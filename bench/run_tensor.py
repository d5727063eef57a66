#!/usr/bin/env python3
"""A step of ranks that share each layer: tensor, sequence and context parallel, against torch.distributed's tensor parallel.

    bench/run_tensor.py [--build build] [--python PYTHON_WITH_TORCH] [--rounds 3] [--steps 10] [--json FILE]

Two ranks with one thread each, the GPT of bench/gpt.toml (6 layers, 6 heads, 384 wide, T = 256), 8 sequences a step in
one micro-batch, fp32. Every round runs each program once; a figure is the median of the steps of all rounds, without
each run's first three. Beside it the same job data parallel: what the sums that are waited for cost.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import run_gpt

HERE = pathlib.Path(__file__).resolve().parent
OWN = {
    "tensor": {"parallel.tensor": 2, "batch.micro": 8},
    "tensor, sequence": {"parallel.tensor": 2, "parallel.sequence": "true", "batch.micro": 8},
    "context": {"parallel.context": 2, "batch.micro": 8},
    "data": {"batch.micro": 4},
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(HERE.parent / "build"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", help="write the figures here")
    return parser.parse_args()


def own_command(options, values, data, out):
    values = {"batch.global": 8, "train.steps": options.steps} | values
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    return [str(pathlib.Path(options.build) / "bin" / "trireme"), "train", str(HERE / "gpt.toml"), "--ranks", "2",
            "--data", str(data), "--out", str(out), "--json", *words]


def measure(options):
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = folder / "data"
        run_gpt.write_data(data)
        for number in range(options.rounds):
            commands = {who: own_command(options, values, data, folder / f"{who}-{number}") for who, values in OWN.items()}
            commands["torch"] = [options.python, str(HERE / "peers" / "torch_tensor.py"), "--data", str(data),
                                 "--steps", str(options.steps)]
            for who, command in commands.items():
                print(f"round {number + 1} of {options.rounds}: {who}", file=sys.stderr, flush=True)
                seconds, exposed, loss = run_gpt.run(command)
                figure = figures.setdefault(who, {"steps": [], "exposed": [], "loss": loss})
                figure["steps"] += seconds
                if exposed is not None:
                    figure["exposed"].append(exposed)
    for figure in figures.values():
        figure["median"] = statistics.median(figure["steps"])
    return figures


def table(figures):
    peer = figures["torch"]["median"]
    rows = ["| two ranks share | Trireme, step | blocked on communication | torch.distributed, tensor parallel | its / Trireme |",
            "|---|---:|---:|---:|---:|"]
    for who in OWN:
        own = figures[who]
        theirs = f"{peer:.3f} s | {peer / own['median']:.2f}x" if who.startswith("tensor") else "| "
        rows.append(f"| {who} | {own['median']:.3f} s | {100 * statistics.median(own['exposed']):.0f} % | {theirs} |")
    return "\n".join(rows)


def main():
    options = parse()
    figures = measure(options)
    print(table(figures))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
