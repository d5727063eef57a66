#!/usr/bin/env python3
"""A training step of this tree against PyTorch's, interleaved; prints ratios.

    bench/run_gpt.py [--build build] [--python PYTHON_WITH_TORCH] [--rounds 3] [--steps 15] [--ranks 2]
                     [--shape small|base|gpt2|bert|resnet18] [--precisions fp32 bf16] [--peers ddp zero1 fsdp2] [--json FILE]

Same model (a GPT, BERT's encoder, ResNet-18), data, precision, and ranks with one thread each. Against ddp (and compiled, DDP under torch.compile)
runs parallel.sync = plain, against ZeroRedundancyOptimizer zero1, against FSDP2 zero3.
Every round runs each program once; a program's figure is the median of its steps over all rounds, without
each run's first three.
"""
import argparse
import json
import os
import pathlib
import random
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
# shape -> model, and what is set over bench/MODEL.toml. "gpt2" is GPT-2's smallest size, "base" the same over bytes.
SHAPES = {
    "small": ("gpt", {"layers": 6, "heads": 6, "width": 384, "block": 256, "global-batch": 8}),
    "base": ("gpt", {"layers": 12, "heads": 12, "width": 768, "block": 128, "global-batch": 4}),
    "gpt2": ("gpt", {"layers": 12, "heads": 12, "width": 768, "block": 128, "vocab": 50257, "global-batch": 4}),
    "bert": ("bert", {"layers": 12, "heads": 12, "width": 768, "block": 128, "global-batch": 8}),
    "resnet18": ("resnet18", {"width": 64, "global-batch": 64}),
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(HERE.parent / "build"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--shape", choices=SHAPES, default="small", help="GPT of 10.9, 85 or 124 million parameters, BERT-base's encoder, ResNet-18 on 32 x 32")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["ddp", "zero1", "fsdp2"])
    parser.add_argument("--json", help="write the figures here")
    return parser.parse_args()


def write_images(folder):
    """CIFAR-10's records with made-up pixels: how long a step takes does not depend on them."""
    generator = random.Random(1)
    folder.mkdir()
    for name, count in (("data_batch_1.bin", 512), ("test_batch.bin", 64)):
        (folder / name).write_bytes(b"".join(bytes([i % 10]) + generator.randbytes(3 * 32 * 32) for i in range(count)))


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
    model, numbers = SHAPES[options.shape]
    batch = numbers["global-batch"]
    own = {f"model.{key}": value for key, value in numbers.items() if key != "global-batch"}
    own |= {"batch.global": batch, "batch.micro": batch // options.ranks}
    own_shape = [word for key, value in own.items() for word in ("--set", f"{key}={value}")]
    shape = ["--model", model] + [word for key, value in numbers.items() for word in (f"--{key}", str(value))]
    for precision in options.precisions:
        for peer in options.peers:
            sync = PEERS[peer][0]
            found[sync, precision] = [
                str(pathlib.Path(options.build) / "bin" / "trireme"), "train", str(HERE / f"{model}.toml"),
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
        data = pathlib.Path(folder) / "data"
        write_images(data) if SHAPES[options.shape][0] == "resnet18" else write_data(data)
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
