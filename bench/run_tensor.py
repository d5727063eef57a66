#!/usr/bin/env python3
"""A step of ranks that share each layer: tensor, sequence and context parallel, against torch.distributed's tensor parallel.

    bench/run_tensor.py [--build build] [--python PYTHON_WITH_TORCH] [--rounds 3] [--steps 10] [--json FILE]

Two ranks with one thread each, the GPT of bench/gpt.toml (6 layers, 6 heads, 384 wide, T = 256), 8 sequences a step in
one micro-batch, fp32. Every round runs each program once; a figure is the median of the steps of all rounds, without
each run's first three. Beside it the same job data parallel: what the sums that are waited for cost.
"""
import statistics
import sys

import turns

OWN = {
    "tensor": {"parallel.tensor": 2, "batch.micro": 8},
    "tensor, sequence": {"parallel.tensor": 2, "parallel.sequence": "true", "batch.micro": 8},
    "context": {"parallel.context": 2, "batch.micro": 8},
    "data": {"batch.micro": 4},
}


def parse():
    parser = turns.parser(__doc__)
    parser.add_argument("--python", default=sys.executable)
    return parser.parse_args()


def commands(options, data, out):
    found = {who: turns.train(options, data, f"{out}-{who}", {"batch.global": 8} | values) for who, values in OWN.items()}
    return found | {"torch": [options.python, str(turns.HERE / "peers" / "torch_tensor.py"), "--data", str(data),
                              "--steps", str(options.steps)]}


def measure(options):
    figures = {}
    for who, seconds, exposed, loss in turns.trainings(options, commands):
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
    return rows


def main():
    options = parse()
    turns.need_torch(options.python)
    figures = measure(options)
    turns.finish(options, table(figures), figures)


if __name__ == "__main__":
    main()
