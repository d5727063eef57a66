#!/usr/bin/env python3
"""Trains gpt-nano on 4 ranks while one is killed every 15 s; shows what happens, and compares the
weights with those of the run that nobody disturbed.

  demo_chaos.py TRIREME [--every SECONDS] [--steps N] [--ranks N] [--seed N] [--set KEY=VALUE ...]
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

CONFIG = pathlib.Path(__file__).parent.parent / "configs" / "gpt-nano.toml"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("trireme")
    parser.add_argument("--every", type=float, default=15, help="seconds between kills")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    return parser.parse_args()


def command(options, ranks, folder, more):
    settings = [f"train.steps={options.steps}", "train.validate_every=0", "train.kernel_threads=1"]
    result = [options.trireme, "train", str(CONFIG), "--ranks", str(ranks), "--out", str(folder)]
    for one in settings + options.set:
        result += ["--set", one]
    return result + more


def environment_of(process):
    try:
        entries = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(entry.decode(errors="replace").split("=", 1) for entry in entries if b"=" in entry)


def ranks_of(launcher):
    """Process ids of the launcher's ranks, by their numbers."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            job = environment_of(entry.name)
            if job.get("TRIREME_JOB") == str(launcher) and "TRIREME_RANK" in job:
                found[int(job["TRIREME_RANK"])] = int(entry.name)
    return found


def events(folder, kind):
    try:
        lines = (folder / "events.jsonl").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [json.loads(line) for line in lines if line.startswith('{"event":"' + kind) and line.endswith("}")]


def hash_of(options, folder):
    return subprocess.run([options.trireme, "inspect", str(folder), "--hash"], check=True, text=True,
                          capture_output=True).stdout.strip()


def run(options, ranks, folder, more, disturb):
    log = folder.with_suffix(".log")
    began = time.monotonic()
    with open(log, "w") as output:
        job = subprocess.Popen(command(options, ranks, folder, more), stdout=output, stderr=output,
                               stdin=subprocess.DEVNULL)
        kills = disturb(job)
        code = job.wait()
    if code != 0:
        sys.exit(f"the training ended with {code}; its last lines:\n" + "".join(log.read_text()[-2000:]))
    return time.monotonic() - began, kills


def chaos(options, folder):
    dice = random.Random(options.seed)
    back = "\r" if sys.stdout.isatty() else ""

    def disturb(job):
        kills, next_kill, told, steps = 0, None, 0, 0
        while job.poll() is None:
            time.sleep(0.1)
            done = events(folder, "step")
            for change in events(folder, "regrouped")[told:]:
                told += 1
                print(f"{back}  step {change['step']:5}  {change['cause']}; {change['ranks']} ranks went on after "
                      f"{change['seconds']:.2f} s, {change['steps_repeated']} steps repeated")
            if done and done[-1]["step"] != steps:
                steps = done[-1]["step"]
                if sys.stdout.isatty():
                    print(f"\r  step {steps:5} of {options.steps}, loss {done[-1]['loss']:.3f} ", end="", flush=True)
            if next_kill is None and steps > 3:
                next_kill = time.monotonic() + options.every
            if next_kill and time.monotonic() > next_kill:
                ranks = ranks_of(job.pid)
                if ranks:
                    victim = dice.choice(sorted(ranks))
                    os.kill(ranks[victim], signal.SIGKILL)
                    kills += 1
                    print(f"{back}  step {steps:5}  killed process {victim}")
                next_kill += options.every
        print()
        return kills

    return disturb


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="trireme-chaos-") as place:
        alone, disturbed = pathlib.Path(place) / "alone", pathlib.Path(place) / "chaos"
        print(f"gpt-nano, {options.steps} steps on {options.ranks} ranks, nobody disturbs them")
        quiet, _ = run(options, options.ranks, alone, [], lambda job: 0)
        print(f"  {quiet:.1f} s\nthe same, and every {options.every:g} s a process is killed")
        elastic = ["--elastic", f"1:{options.ranks}", "--restarts", "100000"]
        took, kills = run(options, options.ranks, disturbed, elastic, chaos(options, disturbed))
        changes = events(disturbed, "regrouped")
        seconds = sorted(change["seconds"] for change in changes if "killed" in change["cause"]) or [0]
        print(f"  {took:.1f} s, {kills} kills: {100 * quiet / took:.0f} % of the undisturbed run's pace; "
              f"went on after {seconds[len(seconds) // 2]:.2f} s (the median), {seconds[-1]:.2f} s (the longest)")
        print(f"steps repeated: {sum(change['steps_repeated'] for change in changes)}")
        hashes = hash_of(options, alone), hash_of(options, disturbed)
        print(f"weights, undisturbed  {hashes[0]}\nweights, with kills   {hashes[1]}")
        if hashes[0] != hashes[1]:
            sys.exit("the weights differ: please report it")
        print("the same, bit for bit")


if __name__ == "__main__":
    main()
