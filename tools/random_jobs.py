#!/usr/bin/env python3
"""Trains random jobs undisturbed on as few ranks as have their bits (one, but for layers that ranks share, copies that ranks
train apart, and compression), and on a random layout that is killed, stopped or left alone, and resumed on as many ranks
or others. Both must end with the same weights, a hash over all of them; no process may be left.

  random_jobs.py TRIREME [--first SEED] [--jobs N] [--data FOLDER]

A job is decided by its seed. Jobs that are refused (exit code 2) are counted: a random layout is often no layout.
--data: the folder of test data (criteo-tiny, cifar10), for the models that read it.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LIMIT_S = 300  # of one training, also on a loaded machine
REFUSED = 2
OPTIMIZERS = ["adamw", "adamw", "sgd", "lamb", "adafactor", "lion", "adagrad", "ftrl"]
SCHEDULES = ["1f1b", "gpipe", "interleaved-1f1b", "breadth-first", "zb-h1", "zb-v", "dualpipe-v", "naive"]
COPIES = ["local_sgd", "diloco", "easgd", "gossip"]
COMPRESSIONS = ["bf16", "f16", "topk:0.1", "randomk:0.1", "powersgd:2", "onebit"]
ALGORITHMS = ["direct", "naive", "ring", "all_pairs", "central", "tree", "double_tree", "halving_doubling", "hierarchical"]


class Failure(Exception):
    pass


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("trireme")
    parser.add_argument("--first", type=int, default=1, help="seed of the first job")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--data", type=pathlib.Path, default=None)
    return parser.parse_args()


def random_model(pick, data):
    """Keys of a model and its data; embeddings' rows are on servers."""
    kind = pick.choice(["gpt", "gpt", "experts", "bert"] + (["resnet18", "dlrm", "wide_and_deep"] if data else []))
    if kind == "resnet18":
        return {"model.name": kind, "model.width": 4, "data.path": data / "cifar10"}
    if kind in ("dlrm", "wide_and_deep"):
        return {"model.name": kind, "data.path": data / "criteo-tiny/train.tiny.csv", "model.width": 4, "model.hidden": 8,
                "data.rows": pick.choice([100, 1000]), "parallel.sync": "server"}
    keys = {"model.layers": pick.choice([1, 2, 3, 4]), "model.heads": 2, "model.width": pick.choice([16, 32]),
            "model.block": pick.choice([8, 16]), "model.dropout": pick.choice([0, 0, 0.1])}
    if kind == "bert":
        return keys | {"model.name": "bert", "data.name": pick.choice(["text", "masked-text"])}
    keys |= {"model.name": "gpt", "model.activation": pick.choice(["gelu", "swiglu", "geglu"]),
             "model.bias": pick.choice(["true", "false"])}
    if kind == "experts":
        keys |= {"model.experts": pick.choice([2, 4]), "model.top_k": pick.choice([1, 2])}
    return keys


def random_training(pick, data):
    """Keys that decide the bits."""
    keys = random_model(pick, data)
    batch = pick.choice([8, 12, 16])
    keys |= {"batch.global": batch, "batch.micro": pick.choice([1, 2, 4]), "train.steps": pick.choice([6, 12, 25]),
             "train.validate_every": pick.choice([0, 5]), "train.validate_sequences": 4, "train.sample_bytes": 0,
             "checkpoint.every": pick.choice([0, 1, 3, 5]), "train.warmup": pick.choice([0, 3]),
             "train.schedule": pick.choice(["constant", "linear", "cosine", "wsd", "polynomial"]),
             "optimizer.name": pick.choice(OPTIMIZERS),
             "train.precision": pick.choice(["fp32", "fp32", "bf16", "fp64", "fp16"])}
    for share, more in [(0.3, {"train.ema": 0.9}), (0.3, {"train.clip": pick.choice([0, 0.1])}),
                        (0.2, {"train.skip_outliers": 3, "train.outlier_window": 4}),
                        (0.2, {"train.noise_scale": "true"}),
                        (0.2, {"optimizer.groups": "match=*.weight weight_decay=0 learning_rate=0.5"})]:
        if pick.random() < share:
            keys |= more
    return keys


def shared_layers(pick, training):
    """Keys of the ranks that share layers, on which bits depend, and the number of these ranks."""
    if training["model.name"] not in ("gpt", "bert") or pick.random() < 0.5:
        return {}, 1
    keys = {"parallel.tensor": pick.choice([1, 2]), "parallel.context": pick.choice([1, 2])}
    if "model.experts" in training:
        keys["parallel.expert"] = pick.choice([1, 2])
    ranks = keys["parallel.tensor"] * keys["parallel.context"] * keys.get("parallel.expert", 1)
    if keys["parallel.tensor"] > 1 and keys["parallel.context"] == 1:
        keys["parallel.sequence"] = pick.choice(["true", "false"])
    return keys, ranks


def lossy_exchange(pick, ranks):
    """Keys of exchanges whose bits depend on the number of ranks."""
    if pick.random() < 0.5:
        return {"parallel.sync": "plain", "comm.compression": pick.choice(COMPRESSIONS)}
    keys = {"parallel.sync": pick.choice(COPIES), "parallel.local_steps": pick.choice([1, 2, 5]),
            "parallel.post_local_after": pick.choice([0, 0, 4])}
    if keys["parallel.sync"] == "gossip":
        keys["parallel.graph"] = pick.choice(["one_peer", "ring"])
    return keys


def random_layout(pick, training, ranks, folder):
    """Keys that change no bit."""
    kind = "server" if training.get("parallel.sync") == "server" else pick.choice(
        ["plain", "plain", "zero1", "zero2", "zero3", "hybrid", "server", "pipeline", "pipeline", "elastic", "elastic"])
    keys = {"parallel.sync": kind}
    if kind == "hybrid":
        keys["parallel.shard"] = pick.choice([0, 2])
    elif kind == "server":
        keys |= {"server.count": pick.choice([1, 2, 3]), "server.replicas": pick.choice([1, 1, 2])}
    elif kind == "pipeline":
        keys |= {"parallel.sync": pick.choice(["plain", "zero1", "zero2", "zero3", "hybrid"]),
                 "parallel.pipeline": pick.choice([2, ranks]), "parallel.schedule": pick.choice(SCHEDULES)}
    elif kind == "elastic":
        keys |= {"parallel.sync": pick.choice(["plain", "zero1", "zero3", "server"]), "elastic.min": 1,
                 "elastic.spares": pick.choice([0, 1])}
        if keys["parallel.sync"].startswith("zero"):
            keys["checkpoint.memory"] = pick.choice([0, 1])
    if keys["parallel.sync"] == "plain":
        keys["parallel.overlap"] = pick.choice(["true", "false"])
    return keys | anywhere(pick, folder)


def anywhere(pick, folder):
    """Keys of any layout that change no bit."""
    keys = {}
    for share, more in [(0.3, {"train.lanes": 2}), (0.3, {"comm.bucket_bytes": pick.choice([1024, 5000, 65536])}),
                        (0.4, {"memory.recompute": pick.choice(["selective", "full", "every-2"])}),
                        (0.15, {"memory.offload": folder}), (0.15, {"memory.offload_activations": folder}),
                        (0.4, {"comm.algorithm": pick.choice(ALGORITHMS)}), (0.15, {"batch.shares": "auto"}),
                        (0.15, {"rendezvous.store": folder / "store"})]:
        if pick.random() < share:
            keys |= more
    keys["comm.transport"] = pick.choice(["auto", "auto", "tcp", "shm", "mixed", "sim"])
    return keys


def settings(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def start(command, folder):
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", start_new_session=True)


def processes_of(job):
    return [int(pid) for pid in subprocess.run(["pgrep", "-s", str(job.pid)], capture_output=True,
                                               text=True).stdout.split()]


def kill(processes):
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(pid, signal.SIGKILL)


def end(job):
    """The exit code and what the job printed; none of its processes is left a few seconds later."""
    try:
        output = job.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        kill(processes_of(job))
        raise Failure(f"did not end within {LIMIT_S} s: {' '.join(map(str, job.args))}")
    patience = time.monotonic() + 60
    while left := processes_of(job):
        if time.monotonic() > patience:
            kill(left)
            raise Failure(f"left processes {left}: {' '.join(map(str, job.args))}\n{output[-2000:]}")
        time.sleep(0.1)
    return job.returncode, output


def disturb(job, how, after):
    """Kills or stops one process of the job, if it still runs then."""
    try:
        job.wait(after)
        return
    except subprocess.TimeoutExpired:
        pass
    if how == "stop":
        job.send_signal(signal.SIGTERM)
        return
    victims = [pid for pid in processes_of(job) if how == "kill any" or pid == job.pid]
    try:
        os.kill(victims[int(after * 1000) % len(victims)], signal.SIGKILL)
    except (ProcessLookupError, ZeroDivisionError):  # it has ended
        pass


def run(command, folder):
    return end(start(command, folder))


def hash_of(trireme, run_folder, folder):
    code, output = run([trireme, "inspect", run_folder, "--hash"], folder)
    if code != 0:
        raise Failure(f"inspect ended with {code}: {output}")
    return output.split()[-1]


def last_line(output):
    return output.strip().splitlines()[-1] if output.strip() else "(nothing)"


def resume(trireme, command, run_folder, ranks, others, folder):
    """Starts a job that did not reach its end again: resumed, on `others` ranks, or anew if there is nothing to go on from."""
    again = [trireme, "train", "--resume", run_folder]
    code, output = run(again + (["--ranks", str(others)] if others != ranks else []), folder)
    if code == REFUSED and others != ranks:  # a layout that other numbers of ranks cannot have
        code, output = run(again, folder)
    if code == REFUSED and (not (run_folder / "config.toml").exists() or "no checkpoint to continue from" in output):
        shutil.rmtree(run_folder, ignore_errors=True)
        code, output = run(command, folder)
    return code, output


def one_job(trireme, seed, data, folder):
    """"refused" or "same"; raises Failure."""
    pick = random.Random(seed)
    (folder / "store").mkdir()
    (folder / "empty.toml").touch()
    training = random_training(pick, data)
    kind = pick.choice(["exact", "exact", "lossy"]) if training.get("parallel.sync") != "server" else "exact"
    if kind == "lossy":
        ranks = least = pick.choice([2, 2, 3, 4])
        training |= lossy_exchange(pick, ranks)
        layout = anywhere(pick, folder)
        if "comm.bucket_bytes" in layout:  # what is compressed together
            training["comm.bucket_bytes"] = layout["comm.bucket_bytes"]
        others = ranks
    else:
        shared, least = shared_layers(pick, training)
        training |= shared
        ranks = least * pick.choice([1, 2] if least > 1 else [2, 2, 3, 4])
        layout = random_layout(pick, training, ranks, folder)
        others = pick.choice([ranks, ranks, least, 2 * least, 3 * least])
    how, after = pick.choice(["nothing", "kill launcher", "kill any", "kill any", "stop"]), pick.uniform(0.3, 4)
    if training.get("parallel.sync") in COPIES and how == "stop":  # its checkpoint is one more exchange
        how = "kill any"
    train = [trireme, "train", "empty.toml"]
    alone = train + ["--ranks", str(least), "--out", folder / "alone"] + settings(training)
    code, output = run(alone, folder)
    if code == REFUSED:
        return "refused"
    if code != 0:
        raise Failure(f"ended with {code}: {' '.join(map(str, alone))}\n{output[-2000:]}")
    command = train + ["--ranks", str(ranks), "--out", folder / "run"] + settings(training | layout)
    job = start(command, folder)
    if how != "nothing":
        disturb(job, how, after)
    code, output = end(job)
    if code == REFUSED:
        return "refused"
    if code != 0 and how != "nothing":
        code, output = resume(trireme, command, folder / "run", ranks, others, folder)
        if code == REFUSED and not (folder / "run").exists():  # it had been killed before it was refused
            return "refused"
    text = f"{how} after {after:.2f} s: {' '.join(map(str, command))}"
    if code != 0:
        raise Failure(f"ended with {code}; {text}\n{output[-2000:]}")
    if hash_of(trireme, folder / "alone", folder) != hash_of(trireme, folder / "run", folder):
        raise Failure(f"other weights; {text}")
    return "same"


def main():
    options = arguments()
    trireme = os.path.abspath(options.trireme)
    data = options.data and options.data.resolve()
    counts = collections.Counter()
    for seed in range(options.first, options.first + options.jobs):
        with tempfile.TemporaryDirectory(prefix="trireme-random-", ignore_cleanup_errors=True) as folder:
            try:
                counts[one_job(trireme, seed, data, pathlib.Path(folder))] += 1
            except Failure as failure:
                counts["failed"] += 1
                print(f"seed {seed}: {failure}", flush=True)
        done = seed - options.first + 1
        if done % 10 == 0 or done == options.jobs:
            print(f"{done} of {options.jobs} jobs: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())),
                  flush=True)
    if counts["same"] == 0:
        sys.exit("No job was trained: all were refused or failed.")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
