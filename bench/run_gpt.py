#!/usr/bin/env python3
"""A training step of this tree against PyTorch's, interleaved; prints ratios.

    bench/run_gpt.py [--build build] [--python PYTHON_WITH_TORCH] [--rounds 3] [--steps 15] [--ranks 2]
                     [--shape small|base] [--precisions fp32 bf16] [--peers ddp zero1 fsdp2] [--json FILE]

Same GPT, data, precision, and ranks with one thread each. Against ddp (and compiled, DDP under torch.compile)
runs parallel.sync = plain, against ZeroRedundancyOptimizer zero1, against FSDP2 zero3.
Every round runs each program once; a program's figure is the median of its steps over all rounds, without
each run's first three.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WARM_UP = 3
PRECISIONS = ("fp32", "bf16")
# peer -> what runs against it, and its name in the table
PEERS = {"ddp": ("plain", "DDP"), "compiled": ("plain", "DDP under torch.compile"),
         "zero1": ("zero1", "ZeroRedundancyOptimizer"), "fsdp2": ("zero3", "FSDP2")}
# Over bench/gpt.toml: (layers, heads, width, block, global batch). "base" has GPT-2's smallest size.
SHAPES = {"small": (6, 6, 384, 256, 8), "base": (12, 12, 768, 128, 4)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(HERE.parent / "build"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--shape", choices=SHAPES, default="small", help="10.9 or 85 million parameters")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["ddp", "zero1", "fsdp2"])
    parser.add_argument("--json", help="write the figures here")
    return parser.parse_args()


def write_data(path):
    """Some 10 MB of real text: the C++ library's headers, as `trireme train` takes without --data."""
    listing = subprocess.run(["c++", "-E", "-x", "c++", "-", "-v"], input="", capture_output=True, text=True,
                             check=True).stderr
    folders = [line.strip() for line in listing.split("#include <...> search starts here:")[1].splitlines()
               if line.startswith(" ")]
    with open(path, "wb") as out:
        for file in sorted(pathlib.Path(folders[0]).rglob("*")):
            if file.is_file():
                out.write(file.read_bytes())


def commands(options, data, out):
    """(who, precision) -> command; who: a parallel.sync of this tree's, or "peer" and its name."""
    found = {}
    layers, heads, width, block, batch = SHAPES[options.shape]
    own = {"model.layers": layers, "model.heads": heads, "model.width": width, "model.block": block,
           "batch.global": batch, "batch.micro": batch // options.ranks}
    own_shape = [word for key, value in own.items() for word in ("--set", f"{key}={value}")]
    shape = ["--layers", str(layers), "--heads", str(heads), "--width", str(width), "--block", str(block),
             "--global-batch", str(batch)]
    for precision in options.precisions:
        for peer in options.peers:
            sync = PEERS[peer][0]
            found[sync, precision] = [
                str(pathlib.Path(options.build) / "bin" / "trireme"), "train", str(HERE / "gpt.toml"),
                "--ranks", str(options.ranks), "--data", str(data), "--out", f"{out}-{sync}-{precision}", "--json",
                "--set", f"train.steps={options.steps}", "--set", f"train.precision={precision}",
                "--set", f"parallel.sync={sync}", *own_shape]
            found[f"peer {peer}", precision] = [
                options.python, str(HERE / "peers" / "torch_gpt.py"), "--parallel", peer, "--data", str(data),
                "--ranks", str(options.ranks), "--steps", str(options.steps), "--precision", precision, *shape]
    return found


def run(command):
    """The steps of one run, without the first ones, in seconds; the share of them that rank 0 was blocked on
    communication (None where the program does not say); and the last loss."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    steps = [event for event in events if event.get("event") == "step"]
    if done.returncode != 0 or len(steps) <= WARM_UP:
        sys.exit(f"'{' '.join(command)}' ended with {done.returncode}:\n{done.stderr[-2000:]}")
    timed = steps[WARM_UP:]
    exposed = None
    if "communication_seconds" in timed[0]:
        exposed = sum(step["communication_seconds"] for step in timed) / sum(step["step_seconds"] for step in timed)
    return [step["step_seconds"] for step in timed], exposed, steps[-1]["loss"]


def measure(options):
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "headers.txt"
        write_data(data)
        for number in range(options.rounds):
            out = pathlib.Path(folder) / f"run-{number}"
            for key, command in commands(options, data, out).items():
                print(f"round {number + 1} of {options.rounds}: {' '.join(key)}", file=sys.stderr, flush=True)
                seconds, exposed, loss = run(command)
                figure = figures.setdefault(" ".join(key), {"steps": [], "losses": [], "exposed": []})
                if exposed is not None:
                    figure["exposed"].append(exposed)
                figure["steps"] += seconds
                figure["losses"].append(loss)
    for figure in figures.values():
        figure["median"] = statistics.median(figure["steps"])
    return figures


def table(figures, options):
    rows = ["| precision | sync | Trireme, step | of it communication | against | its step | its / Trireme | "
            "loss at the end | its |", "|---|---|---:|---:|---|---:|---:|---:|---:|"]
    for precision in options.precisions:
        for peer in options.peers:
            sync, name = PEERS[peer]
            own, theirs = figures[f"{sync} {precision}"], figures[f"peer {peer} {precision}"]
            rows.append(f"| {precision} | {sync} | {own['median']:.3f} s | {statistics.median(own['exposed']):.1%} | "
                        f"{name} | {theirs['median']:.3f} s | {theirs['median'] / own['median']:.2f}x | "
                        f"{own['losses'][-1]:.3f} | {theirs['losses'][-1]:.3f} |")
    return "\n".join(rows)


def main():
    options = parse()
    figures = measure(options)
    print(table(figures, options))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
