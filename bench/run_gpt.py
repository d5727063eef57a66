#!/usr/bin/env python3
"""A training step of this tree against PyTorch's, interleaved; prints ratios.

    bench/run_gpt.py [--build build] [--python PYTHON_WITH_TORCH] [--rounds 3] [--steps 15] [--ranks 2]
                     [--shape small|base|gpt2|bert|resnet18] [--precisions fp32 bf16] [--peers ddp zero1 fsdp2] [--json FILE]

Same model (a GPT, BERT's encoder, ResNet-18), data, precision, and ranks with one thread each. Against ddp (and compiled, DDP under torch.compile)
runs parallel.sync = plain, against ZeroRedundancyOptimizer zero1, against FSDP2 zero3.
"limit" is bench/peers/products.py: the model's matrix products alone, by the faster library of those LibTorch carries.
Every round runs each program once; a program's figure is the median of its steps over all rounds, without
each run's first three.
"""
import random
import statistics
import sys

import turns

PRECISIONS = ("fp32", "bf16")
# peer -> the program to compare with, and its name in the table
PEERS = {"ddp": ("plain", "DDP"), "compiled": ("plain", "DDP under torch.compile"),
         "zero1": ("zero1", "ZeroRedundancyOptimizer"), "fsdp2": ("zero3", "FSDP2")}
# shape -> model, and settings over bench/MODEL.toml. "gpt2" is GPT-2's smallest size.
SHAPES = {
    "small": ("gpt", {"layers": 6, "heads": 6, "width": 384, "block": 256, "global-batch": 8}),
    "base": ("gpt", {"layers": 12, "heads": 12, "width": 768, "block": 128, "global-batch": 4}),
    "gpt2": ("gpt", {"layers": 12, "heads": 12, "width": 768, "block": 128, "vocab": 50257, "global-batch": 4}),
    "bert": ("bert", {"layers": 12, "heads": 12, "width": 768, "block": 128, "global-batch": 8}),
    "resnet18": ("resnet18", {"width": 64, "global-batch": 64}),
}


def parse():
    parser = turns.parser(__doc__, steps=15)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=turns.at_least(1), default=2)
    parser.add_argument("--shape", choices=SHAPES, default="small",
                        help="GPT of 10.9, 85 or 124 million parameters, BERT-base's encoder, ResNet-18 on 32 x 32")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["ddp", "zero1", "fsdp2"])
    options = parser.parse_args()
    if SHAPES[options.shape][1]["global-batch"] % options.ranks != 0:
        parser.error(f"{options.ranks} ranks cannot have equal parts of the {SHAPES[options.shape][1]['global-batch']} samples "
                     f"of a step of {options.shape}")
    return options


def write_images(folder):
    """CIFAR-10's records with made-up pixels: how long a step takes does not depend on them."""
    generator = random.Random(1)
    folder.mkdir()
    for name, count in (("data_batch_1.bin", 512), ("test_batch.bin", 64)):
        (folder / name).write_bytes(b"".join(bytes([i % 10]) + generator.randbytes(3 * 32 * 32) for i in range(count)))


def commands(options, data, out):
    """who -> command; who: a parallel.sync of this tree's, or "peer" and its name; and the precision."""
    found = {}
    model, numbers = SHAPES[options.shape]
    batch = numbers["global-batch"]
    own = {f"model.{key}": value for key, value in numbers.items() if key != "global-batch"}
    own |= {"batch.global": batch, "batch.micro": batch // options.ranks}
    shape = ["--model", model] + [word for key, value in numbers.items() for word in (f"--{key}", str(value))]
    for precision in options.precisions:
        peer_words = ["--data", str(data), "--ranks", str(options.ranks), "--steps", str(options.steps),
                      "--precision", precision, *shape]
        found[f"limit {precision}"] = [options.python, str(turns.HERE / "peers" / "products.py"), *peer_words]
        for peer in options.peers:
            sync = PEERS[peer][0]
            found[f"{sync} {precision}"] = turns.train(
                options, data, f"{out}-{sync}-{precision}",
                {"train.precision": precision, "parallel.sync": sync} | own, ranks=options.ranks, config=f"bench/{model}.toml")
            found[f"peer {peer} {precision}"] = [
                options.python, str(turns.HERE / "peers" / "torch_gpt.py"), "--parallel", peer, *peer_words]
    return found


def measure(options):
    figures = {}
    write = write_images if SHAPES[options.shape][0] == "resnet18" else turns.write_data
    for who, seconds, exposed, loss in turns.trainings(options, commands, write):
        figure = figures.setdefault(who, {"steps": [], "losses": [], "exposed": []})
        if exposed is not None:
            figure["exposed"].append(exposed)
        figure["steps"] += seconds
        figure["losses"].append(loss)
    for figure in figures.values():
        figure["median"] = statistics.median(figure["steps"])
    return figures


def table(figures, options):
    rows = ["| precision | sync | Trireme, step | of it communication | against | its step | its / Trireme | "
            "limit | loss at the end | its |", "|---|---|---:|---:|---|---:|---:|---:|---:|---:|"]
    for precision in options.precisions:
        for peer in options.peers:
            sync, name = PEERS[peer]
            own, theirs = figures[f"{sync} {precision}"], figures[f"peer {peer} {precision}"]
            rows.append(f"| {precision} | {sync} | {own['median']:.3f} s | {statistics.median(own['exposed']):.1%} | "
                        f"{name} | {theirs['median']:.3f} s | {theirs['median'] / own['median']:.2f}x | "
                        f"{figures[f'limit {precision}']['median']:.3f} s | "
                        f"{own['losses'][-1]:.3f} | {theirs['losses'][-1]:.3f} |")
    return rows


def main():
    options = parse()
    turns.need_torch(options.python)
    figures = measure(options)
    turns.finish(options, table(figures, options), figures)


if __name__ == "__main__":
    main()
