"""What the benches share: options, this tree's command, how programs are built and run in turns, what is written.

Programs take turns, round by round, so that all see the same minutes of the machine; a run's first steps do not count.
All of them have the same environment and, with --priority, the same real-time priority. Each is a session of its own,
nothing of which outlives its run."""
import argparse
import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
WARM_UP = 3
# One thread a rank. Huge pages and freed memory that is kept: what `trireme train` asks the allocator for.
ENVIRONMENT = {"OMP_NUM_THREADS": "1",
               "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:"
                                 "glibc.malloc.trim_threshold=2147483647:glibc.malloc.top_pad=67108864"}
# A program that prints nothing for so long is killed. torch.compile takes minutes for the first step.
SECONDS_OF_SILENCE = 900
# So is one that has printed its last step and does not end: PyTorch's Gloo sometimes waits for itself.
SECONDS_TO_END = 60
JSON_LINE = re.compile(rb"(?:\[[^\]]*\] )?(\{.*\})\s*")   # `trireme launch` puts the rank before a line
# (family, lowest model) -> generation of the processor, which clouds hide in the name.
GENERATIONS = {("AuthenticAMD", 25): [(0, "Zen 3"), (16, "Zen 4"), (32, "Zen 3"), (96, "Zen 4")],
               ("AuthenticAMD", 26): [(0, "Zen 5")],
               ("GenuineIntel", 6): [(85, "Skylake or Cascade Lake"), (106, "Ice Lake"), (143, "Sapphire Rapids"),
                                     (173, "Granite Rapids"), (207, "Emerald Rapids")]}


def machine():
    """For example "AMD EPYC (Zen 5), 2 cores"."""
    facts = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
    family, model = int(facts.get("cpu family", 0)), int(facts.get("model", 0))
    known = [name for first, name in GENERATIONS.get((facts.get("vendor_id"), family), []) if model >= first]
    generation = known[-1] if known else f"family {family}, model {model}"
    return f"{facts.get('model name', 'unknown')} ({generation}), {cores()} cores"


def cores():
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def at_least(least, why=""):
    """A type of arguments: whole numbers."""
    def number(text):
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}{why}")
        return int(text)
    return number


def positive(text):
    """A type of arguments: numbers above 0."""
    if not float(text) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return float(text)


def new_file(text):
    """A type of arguments: a file that is written at the end. A folder that is absent is said before hours of measuring."""
    if not pathlib.Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder of {text} does not exist")
    return text


def parser(about, rounds=3, steps=10, least_rounds=1, warm_up=WARM_UP):
    """Of a bench whose docstring is `about`: --build, --rounds, --steps, --priority, --json. rounds, steps: the defaults,
    or None if the bench has no such option. From now on a signal that asks the bench to end also ends what it runs."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    found = argparse.ArgumentParser(description=about.splitlines()[0])
    found.add_argument("--build", default=str(HERE.parent / "build"))
    if rounds is not None:
        found.add_argument("--rounds", type=at_least(least_rounds), default=rounds)
    if steps is not None:
        why = f": the first {warm_up} steps do not count" if warm_up else ""
        found.add_argument("--steps", type=at_least(warm_up + 1, why), default=steps)
    found.add_argument("--priority", action="store_true", help="every program with real-time priority (chrt -r 10)")
    found.add_argument("--json", type=new_file, help="write the figures here")
    return found


def has_module(python, module):
    """Whether this Python, a path or a command, can import a module."""
    return shutil.which(python) is not None and subprocess.run(
        [python, "-c", f"import {module}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def need_torch(python):
    if not has_module(python, "torch.distributed"):
        sys.exit(f"{python} cannot import torch.distributed: --python names a Python with PyTorch, such as .venv/bin/python")


def why_not_built(build, *targets):
    """Builds programs; the end of what the compiler says if it cannot, else nothing."""
    done = subprocess.run(["cmake", "--build", str(build), "--target", *targets], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout[-2000:] if done.returncode != 0 else ""


def build(options, *targets):
    if why := why_not_built(options.build, *targets):
        sys.exit(f"{why}\n{', '.join(targets)} cannot be built in {options.build}, which tools/build.py makes")


def trireme(options, verb, data, values, *words, ranks=2, config="bench/gpt.toml"):
    """`trireme VERB CONFIG` with `values` set: config key -> value."""
    return [str(pathlib.Path(options.build) / "bin" / "trireme"), verb, str(HERE.parent / config), "--ranks", str(ranks),
            "--data", str(data), "--json", *words,
            *(word for key, value in values.items() for word in ("--set", f"{key}={value}"))]


def train(options, data, out, values, *words, **more):
    """`trireme train` of options.steps steps into the folder `out`."""
    return trireme(options, "train", data, {"train.steps": options.steps} | values, "--out", str(out), *words, **more)


def compiler_headers():
    """The folder of the C++ library's headers."""
    listing = subprocess.run(["c++", "-E", "-x", "c++", "-", "-v"], input="", capture_output=True, text=True,
                             check=True).stderr
    folders = [line.strip() for line in listing.split("#include <...> search starts here:")[1].splitlines()
               if line.startswith(" ")]
    return folders[0]


def write_data(path, folder=None):
    """10 to 25 MB of real text: the files in `folder`, by default the C++ library's headers, as `trireme train` takes
    without --data. The file is whole or absent."""
    partial = pathlib.Path(f"{path}.part")
    with open(partial, "wb") as out:
        for file in sorted(pathlib.Path(folder or compiler_headers()).rglob("*")):
            if file.is_file():
                out.write(file.read_bytes())
    partial.rename(path)


def prioritised(options, command):
    return [*(["chrt", "-r", "10"] if options.priority else []), *map(str, command)]


def lines_of(program, limit):
    """The lines that a program prints; TimeoutError if it prints nothing for limit() seconds."""
    rest = b""
    while select.select([program.stdout], [], [], limit())[0]:
        piece = os.read(program.stdout.fileno(), 1 << 16)
        if not piece:
            return
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    raise TimeoutError


def left_of(leader):
    """Process ids of what is left of a session, and of all that it started, which may have sessions of its own."""
    children, found = {}, []
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            _, parent, _, session, *_ = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        children.setdefault(int(parent), []).append(int(entry.parent.name))
        if int(session) == leader:
            found.append(int(entry.parent.name))
    for one in found:
        found += (child for child in children.get(one, []) if child not in found)
    return found


@contextlib.contextmanager
def started(command, errors=None, environment=None):
    """A program that is killed with all that it has started, however the context ends."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=os.environ | (environment or ENVIRONMENT),
                          start_new_session=True) as program:
        try:
            yield program
        finally:
            for one in left_of(program.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)


def events_of(options, command, silence=None, steps=None):
    """The JSON objects that a program prints, with the second when each came ("at", of the monotonic clock). If it fails,
    or prints nothing for `silence` seconds (SECONDS_OF_SILENCE), the bench ends with what it said. One that does not end
    after `steps` steps is killed and counts."""
    command = prioritised(options, command)
    events, other = [], []

    def stepped():
        return steps is not None and sum(event.get("event") == "step" for event in events) >= steps

    def limit():
        return SECONDS_TO_END if stepped() else silence or SECONDS_OF_SILENCE

    how = ""
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        try:
            with started(command, errors) as program:
                for line in lines_of(program, limit):
                    if found := JSON_LINE.fullmatch(line):
                        events.append(json.loads(found[1]) | {"at": time.monotonic()})
                    else:
                        other.append(line.decode(errors="replace") + "\n")
                if (code := program.wait(limit())) or not events:
                    how = f"ended with {code}"
        except (TimeoutError, subprocess.TimeoutExpired):
            if stepped():
                print(f"killed {limit()} s after its last step: {' '.join(command)}", file=sys.stderr)
            else:
                how = f"was killed: it printed nothing for {limit()} s"
        if how:
            errors.seek(0)
            sys.exit(f"'{' '.join(command)}' {how}:\n{(''.join(other) + errors.read())[-2000:]}")
    return events


def run(options, command):
    """The steps of one run, without the first ones, in seconds; the share of them that rank 0 was blocked on
    communication (None where the program does not say); and the last loss."""
    steps = [event for event in events_of(options, command, steps=options.steps) if event.get("event") == "step"]
    if len(steps) < options.steps:
        sys.exit(f"'{' '.join(command)}' ended after {len(steps)} of {options.steps} steps")
    timed = steps[WARM_UP:]
    exposed = None
    if "communication_seconds" in timed[0]:
        exposed = sum(step["communication_seconds"] for step in timed) / sum(step["step_seconds"] for step in timed)
    return [step["step_seconds"] for step in timed], exposed, steps[-1]["loss"]


def in_turns(options, commands):
    """`commands(number)`: who -> command, of one round. Yields each one's (who, *run(command)) as it ends."""
    for number in range(options.rounds):
        for who, command in commands(number).items():
            name = who if isinstance(who, str) else ", ".join(str(one) for one in who)
            print(f"round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
            found = run(options, command)
            if "--out" in command:  # its checkpoint may have gigabytes
                shutil.rmtree(command[command.index("--out") + 1], ignore_errors=True)
            yield who, *found


def trainings(options, commands, write=write_data):
    """in_turns() of commands(options, data, out): what write() writes, and how the names of a round's folders begin."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write(folder / "data")
        yield from in_turns(options, lambda number: commands(options, folder / "data", folder / f"run-{number}"))


def finish(options, rows, figures):
    """Prints the machine and a table's rows, and writes the figures where --json says."""
    rounds = f", {options.rounds} rounds" if "rounds" in options else ""
    print(f"{machine()}{rounds}{', real-time priority' if options.priority else ''}\n")
    print("\n".join(rows))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1) + "\n")
