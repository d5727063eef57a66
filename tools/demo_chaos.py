#!/usr/bin/env python3
"""Trains gpt-nano on 4 ranks while one of them, a server or their coordinator is killed every 15 s; shows what happens,
and compares the weights with those of the run that nobody disturbed. Workers that train on their own have other weights
each time; there it counts whether the servers have applied each gradient once.

  demo_chaos.py TRIREME [--every SECONDS] [--steps N] [--ranks N] [--seed N] [--set KEY=VALUE ...] [--coordinator]
                [--patience SECONDS]

With --coordinator this program starts the ranks and servers itself, and `trireme coordinator`, in place of a launcher.
Servers: --set parallel.sync=server --set server.count=2 --set server.replicas=2
Workers that train on their own: --set server.staleness=4 as well
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
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
    parser.add_argument("--coordinator", action="store_true")
    parser.add_argument("--patience", type=float, default=600, help="a training that takes no step for so long has failed")
    return parser.parse_args()


def on_their_own(options):
    return any(one.startswith("server.staleness=") and one != "server.staleness=0" for one in options.set)


def servers_of(options):
    return next((int(one.split("=")[1]) for one in options.set if one.startswith("server.count=")), 0)


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


def is_coordinator(process, launcher):
    try:
        return b"launch-coordinator" in (process / "cmdline").read_bytes() and \
            f"PPid:\t{launcher}\n" in (process / "status").read_text()
    except OSError:
        return False


class LauncherJob:
    """A training whose launcher starts again what dies."""

    def __init__(self, options, folder, ranks, more=()):
        self.log = folder.with_suffix(".log")
        with open(self.log, "w") as output:
            self.launcher = subprocess.Popen(command(options, ranks, folder, list(more)), stdout=output,
                                             stderr=output, stdin=subprocess.DEVNULL)

    def poll(self):
        return self.launcher.poll()

    def processes(self):
        return [self.launcher]

    def victims(self):
        """Process ids by name."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                job = environment_of(entry.name)
                if job.get("TRIREME_JOB") == str(self.launcher.pid) and "TRIREME_RANK" in job:
                    kind = "server" if job.get("TRIREME_ROLE") == "server" else "process"
                    found[f"{kind} {job['TRIREME_RANK']}"] = int(entry.name)
                elif is_coordinator(entry, self.launcher.pid):
                    found["the coordinator"] = int(entry.name)
        return found

    def kill(self, name, process):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(process, signal.SIGKILL)


class CoordinatedJob:
    """A training whose processes, and whose coordinator, are started again here."""

    def __init__(self, options, folder, ranks):
        self.log, self.folder = folder.with_suffix(".log"), folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        place = folder.parent
        (place / "store").mkdir()
        secret = place / "secret"
        secret.write_text("a secret of this job alone")
        secret.chmod(0o600)
        common = dict(os.environ, TRIREME_JOB_SECRET_FILE=str(secret))
        train = command(options, ranks, folder, ["--resume", "auto"])
        where = train.index("--ranks")
        train = train[:where] + train[where + 2:]
        servers = servers_of(options)
        alone = on_their_own(options)
        workers = ["--workers", str(ranks)] if alone else ["--elastic", f"1:{ranks}"]
        self.commands = {"the coordinator": ([options.trireme, "coordinator", *workers, "--servers", str(servers),
                                              "--listen", address, "--store", str(place / "store")], common)}
        common = dict(common, TRIREME_COORDINATOR=address, TRIREME_ELASTIC="workers" if alone else "1",
                      TRIREME_WORKERS=str(ranks), TRIREME_SERVERS=str(servers))
        for name, role, count in ("process", "worker", ranks), ("server", "server", servers):
            for number in range(count):
                self.commands[f"{name} {number}"] = (train, dict(
                    common, TRIREME_ROLE=role, TRIREME_SIZE=str(count), TRIREME_RANK=str(number)))
        self.killed, self.running = set(), {}
        for name in self.commands:
            self.start(name)

    def start(self, name):
        command, environment = self.commands[name]
        with open(self.log, "a") as output:
            self.running[name] = subprocess.Popen(command, env=environment, stdout=output, stderr=output,
                                                  stdin=subprocess.DEVNULL)

    def poll(self):
        codes = {name: process.poll() for name, process in self.running.items()}
        for name, code in codes.items():
            if code in (None, 0):
                continue
            if name not in self.killed:
                return code
            self.killed.discard(name)
            self.start(name)
        return 0 if set(codes.values()) == {0} else None

    def processes(self):
        return list(self.running.values())

    def victims(self):
        return {name: process.pid for name, process in self.running.items() if process.poll() is None}

    def kill(self, name, process):
        self.killed.add(name)
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(process, signal.SIGKILL)


def events(folder, kind):
    try:
        lines = (folder / "events.jsonl").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [json.loads(line) for line in lines if line.startswith(f'{{"event":"{kind}"') and line.endswith("}")]


def hash_of(options, folder):
    return subprocess.run([options.trireme, "inspect", str(folder), "--hash"], check=True, text=True,
                          capture_output=True).stdout.strip()


def fail(job, what):
    sys.exit(f"the training {what}; its last lines:\n" + job.log.read_text()[-2000:])


def while_it_runs(job, folder, patience):
    """Yields ten times a second. Fails if no event has been written for `patience` seconds."""
    told, since = -1, time.monotonic()
    while job.poll() is None:
        with contextlib.suppress(OSError):
            if (size := (folder / "events.jsonl").stat().st_size) != told:
                told, since = size, time.monotonic()
        if time.monotonic() - since > patience:
            fail(job, f"has written no event for {patience:g} s")
        yield
        time.sleep(0.1)


def end(processes):
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run(options, job, folder, disturb):
    began = time.monotonic()
    try:
        kills = disturb(job, while_it_runs(job, folder, options.patience))
        code = job.poll()
    finally:  # interrupted, or given up: nothing goes on training
        end(job.processes())
    if code != 0:
        fail(job, f"ended with {code}")
    return time.monotonic() - began, kills


def leave_alone(job, moments):
    for _ in moments:
        pass
    return 0


def chaos(options, folder):
    dice = random.Random(options.seed)
    back = "\r" if sys.stdout.isatty() else ""

    def disturb(job, moments):
        kills, next_kill, told, steps = 0, None, 0, 0
        for _ in moments:
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
                victims = job.victims()
                if victims:
                    victim = dice.choice(sorted(victims))
                    job.kill(victim, victims[victim])
                    kills += 1
                    print(f"{back}  step {steps:5}  killed {victim}")
                next_kill += options.every
        print()
        return kills

    return disturb


def compare_weights(options, alone, disturbed):
    changes = events(disturbed, "regrouped")
    print(f"steps repeated: {sum(change['steps_repeated'] for change in changes)}")
    hashes = hash_of(options, alone), hash_of(options, disturbed)
    print(f"weights, undisturbed  {hashes[0]}\nweights, with kills   {hashes[1]}")
    if hashes[0] != hashes[1]:
        sys.exit("the weights differ: please report it")
    told = {one["step"] for one in events(disturbed, "step")}
    if untold := sorted(set(range(1, options.steps + 1)) - told):
        sys.exit(f"the events lack steps {untold}: please report it")
    print("the same, bit for bit")


def count_gradients(servers, alone, disturbed):
    for name, folder in ("undisturbed", alone), ("with kills", disturbed):
        figures = events(folder, "servers")[-1]
        loss = events(folder, "validation")[-1]["loss"]
        print(f"{name + ':':13} {sum(figures['pushes']):,} gradients on {servers} servers, {figures['updates']:,} updates; "
              f"validation loss {loss:.3f}")
        if sum(figures["pushes"]) != servers * figures["updates"]:
            sys.exit("a gradient was lost or applied twice: please report it")


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="trireme-chaos-") as place:
        alone, disturbed = pathlib.Path(place) / "alone", pathlib.Path(place) / "chaos"
        print(f"gpt-nano, {options.steps} steps on {options.ranks} ranks, nobody disturbs them")
        quiet, _ = run(options, LauncherJob(options, alone, options.ranks), alone, leave_alone)
        print(f"  {quiet:.1f} s\nthe same, and every {options.every:g} s a process is killed")
        store = pathlib.Path(place) / "launcher-store"
        store.mkdir()
        elastic = ["--elastic", f"1:{options.ranks}", "--restarts", "100000", "--store", str(store)]
        job = (CoordinatedJob(options, disturbed, options.ranks) if options.coordinator
               else LauncherJob(options, disturbed, options.ranks, elastic))
        took, kills = run(options, job, disturbed, chaos(options, disturbed))
        changes = events(disturbed, "regrouped")
        seconds = sorted(change["seconds"] for change in changes if "has come" not in change["cause"])
        again = (f"; went on after {seconds[len(seconds) // 2]:.2f} s (the median), {seconds[-1]:.2f} s (the longest)"
                 if seconds else "")
        print(f"  {took:.1f} s, {kills} kills: {100 * quiet / took:.0f} % of the undisturbed run's pace{again}")
        if on_their_own(options):
            count_gradients(servers_of(options), alone, disturbed)
        else:
            compare_weights(options, alone, disturbed)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
