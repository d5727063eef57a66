#!/usr/bin/env python3
"""What late gradients cost: the loss after equal samples with parameter servers, by staleness, with and without prediction.

    bench/run_late.py [--build build] [--data DIR] [--models gpt-nano mnist] [--staleness 0 1 2 4 -1] [--seeds 1 2 3]
                      [--prediction true false] [--svg FILE] [--priority] [--json FILE]

Two workers and one server. gpt-nano: configs/gpt-nano.toml, 1,500 steps of 8 sequences, AdamW. mnist: ResNet-18 of width 8 on
MNIST's images (padded to 32 x 32, in three channels; DIR/mnist, where DIR is ../shared/data or TRIREME_DATA), 600 steps of 64
images, SGD with momentum 0.9. The loss is that of the validation after the last step, of which several seeds are averaged.
--svg: the runs of gpt-nano with the first seed, drawn over time by `trireme compare`, and beside it the staleness of their gradients."""
import gzip
import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import turns

CONFIGS = turns.HERE.parent / "configs"


def parse():
    parser = turns.parser(__doc__, rounds=None, steps=None)
    parser.add_argument("--data", default=os.environ.get("TRIREME_DATA", str(turns.HERE.parent.parent / "shared" / "data")))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2, 4, -1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--prediction", nargs="+", choices=["true", "false"], default=["true", "false"])
    parser.add_argument("--svg", type=turns.new_file)
    options = parser.parse_args()
    images = pathlib.Path(options.data) / "mnist"
    if "mnist" in options.models and not images.is_dir():
        parser.error(f"{images} does not exist: --data names the folder that has mnist, and --models gpt-nano does without")
    return options


def cifar_of(images, labels, out):
    """Writes IDX files of 28 x 28 gray pixels as CIFAR-10's binary records."""
    pixels, classes = gzip.open(images).read()[16:], gzip.open(labels).read()[8:]
    line = bytes(2)
    with open(out, "wb") as file:
        for number, label in enumerate(classes):
            rows = [pixels[number * 784 + row * 28:number * 784 + row * 28 + 28] for row in range(28)]
            plane = bytes(64) + b"".join(line + row + line for row in rows) + bytes(64)
            file.write(bytes([label]) + 3 * plane)


def gpt_nano(options, folder):
    del options, folder
    return [str(CONFIGS / "gpt-nano.toml")], ["train.steps=1500", "train.validate_every=150"]


def mnist(options, folder):
    data = pathlib.Path(options.data) / "mnist"
    images = folder / "mnist"
    if not images.exists():
        images.mkdir()
        for word, name in (("train", "data_batch.bin"), ("t10k", "test_batch.bin")):
            cifar_of(data / f"{word}-images-idx3-ubyte.gz", data / f"{word}-labels-idx1-ubyte.gz", images / name)
    return ([str(CONFIGS / "resnet18-cifar10.toml"), "--data", str(images)],
            ["model.width=8", "batch.global=64", "batch.micro=32", "train.steps=600", "train.learning_rate=0.05",
             "train.warmup=50", "train.validate_every=600", "train.validate_sequences=10000"])


MODELS = {"gpt-nano": gpt_nano, "mnist": mnist}


def run(options, folder, model, values, name):
    """(loss, accuracy or None, seconds of all steps, mean staleness) of a run."""
    words, own = MODELS[model](options, folder)
    command = [str(pathlib.Path(options.build) / "bin" / "trireme"), "train", *words, "--workers", "2", "--servers", "1",
               "--json", "--out", str(folder / name)]
    for value in [*own, "parallel.sync=server", "checkpoint.every=0", "train.sample_bytes=0", *values]:
        command += ["--set", value]
    events = turns.events_of(options, command)
    last = [one for one in events if one["event"] == "validation"][-1]
    servers = [one for one in events if one["event"] == "servers"]
    late = 0.0
    if servers:
        pushes = dict(zip(servers[-1]["staleness"], servers[-1]["staleness_pushes"]))
        late = sum(number * count for number, count in pushes.items()) / max(sum(pushes.values()), 1)
    seconds = sum(one["step_seconds"] for one in events if one["event"] == "step")
    return last["loss"], last.get("accuracy"), seconds, late


def kinds(options):
    """(staleness, prediction) of all runs; the synchronous one first."""
    late = [(staleness, prediction) for staleness in options.staleness if staleness != 0 for prediction in options.prediction]
    return ([(0, "")] if 0 in options.staleness else []) + late


def measure(options, folder):
    """(model, staleness, prediction) -> run()'s results by seed; and the folders of gpt-nano's runs with the first seed."""
    found, drawn = {}, []
    for model, (staleness, prediction) in itertools.product(options.models, kinds(options)):
        title = f"{model}, s = {staleness}{', predicted' if prediction == 'true' else ''}"
        for seed in options.seeds:
            values = [f"server.staleness={staleness}", f"train.seed={seed}"]
            values += [f"server.prediction={prediction}"] if prediction else []
            name = title.replace(", ", "-").replace(" ", "") + f"-{seed}"
            results = found.setdefault((model, staleness, prediction), [])
            results.append(run(options, folder, model, values, name))
            print(f"{title}, seed {seed}: {results[-1]}", file=sys.stderr, flush=True)
            if model == "gpt-nano" and seed == options.seeds[0]:
                drawn.append(str(folder / name))
    return found, drawn


def table(found):
    rows = ["| model | `server.staleness` | `server.prediction` | mean staleness | loss | above synchronous | accuracy | seconds |",
            "|---|---:|---|---:|---:|---:|---:|---:|"]
    for (model, staleness, prediction), results in found.items():
        losses, accuracies, seconds, late = zip(*results)
        loss = statistics.mean(losses)
        synchronous = found.get((model, 0, ""))
        above = ""
        if synchronous and staleness != 0:
            above = f"{loss / statistics.mean(one[0] for one in synchronous) - 1:+.1%}"
        rows.append(f"| {model} | {staleness} | {prediction} | {statistics.mean(late):.2f} | {loss:.4f} | {above} | "
                    f"{'' if None in accuracies else f'{statistics.mean(accuracies):.2%}'} | {statistics.mean(seconds):.0f} |")
    return rows


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as name:
        found, drawn = measure(options, pathlib.Path(name))
        turns.finish(options, table(found), [
            {"model": model, "staleness": staleness, "prediction": prediction, "losses": [one[0] for one in results],
             "accuracies": [one[1] for one in results if one[1] is not None], "mean_staleness": [one[3] for one in results]}
            for (model, staleness, prediction), results in found.items()])
        if options.svg and drawn:
            subprocess.run([str(pathlib.Path(options.build) / "bin" / "trireme"), "compare", *drawn, "--over", "time", "--svg",
                            options.svg], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
