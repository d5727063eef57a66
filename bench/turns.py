"""What the benches of training steps share: options, this tree's command, programs that take turns, what is written.

Programs take turns, round by round, so that all see the same minutes of the machine; a run's first steps do not count.
All of them have the same environment and, with --priority, the same real-time priority."""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WARM_UP = 3
# One thread a rank. Huge pages and freed memory that is kept: what `trireme train` asks the allocator for.
ENVIRONMENT = {"OMP_NUM_THREADS": "1",
               "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:"
                                 "glibc.malloc.trim_threshold=2147483647:glibc.malloc.top_pad=67108864"}
# A program that has printed its last step and does not end (PyTorch's Gloo sometimes waits for itself) is killed.
SECONDS_TO_END = 20
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
    return f"{facts.get('model name', 'unknown')} ({generation}), {len(os.sched_getaffinity(0))} cores"


def parser(about, rounds=3, steps=10):
    """Of a bench whose docstring is `about`: --build, --rounds, --steps, --priority, --json."""
    found = argparse.ArgumentParser(description=about.splitlines()[0])
    found.add_argument("--build", default=str(HERE.parent / "build"))
    found.add_argument("--rounds", type=int, default=rounds)
    found.add_argument("--steps", type=int, default=steps)
    found.add_argument("--priority", action="store_true", help="every program with real-time priority (chrt -r 10)")
    found.add_argument("--json", help="write the figures here")
    return found


def trireme(options, verb, data, values, *words, ranks=2, model="gpt"):
    """`trireme VERB bench/MODEL.toml` with `values` set: config key -> value."""
    return [str(pathlib.Path(options.build) / "bin" / "trireme"), verb, str(HERE / f"{model}.toml"), "--ranks", str(ranks),
            "--data", str(data), "--json", *words,
            *(word for key, value in values.items() for word in ("--set", f"{key}={value}"))]


def train(options, data, out, values, **more):
    """`trireme train` of options.steps steps into the folder `out`."""
    return trireme(options, "train", data, {"train.steps": options.steps} | values, "--out", str(out), **more)


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


def events_of(program, steps):
    """What a program prints, until it ends; after step number `steps` - 1 it has SECONDS_TO_END to do so."""
    events = []
    for line in program.stdout:
        if not line.startswith("{"):
            continue
        events.append(json.loads(line))
        if events[-1].get("event") == "step" and events[-1]["step"] == steps - 1:
            break
    try:
        rest, _ = program.communicate(timeout=SECONDS_TO_END)
        return events + [json.loads(line) for line in rest.splitlines() if line.startswith("{")], program.returncode
    except subprocess.TimeoutExpired:
        print(f"killed {SECONDS_TO_END} s after its last step: {' '.join(program.args)}", file=sys.stderr)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()
        return events, 0


def run(options, command):
    """The steps of one run, without the first ones, in seconds; the share of them that rank 0 was blocked on
    communication (None where the program does not say); and the last loss."""
    if options.priority:
        command = ["chrt", "-r", "10", *command]
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | ENVIRONMENT,
            start_new_session=True) as program:
        events, code = events_of(program, options.steps)
        errors.seek(0)
        said = errors.read()
    steps = [event for event in events if event.get("event") == "step"]
    if code != 0 or len(steps) <= WARM_UP:
        sys.exit(f"'{' '.join(command)}' ended with {code}:\n{said[-2000:]}")
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
            yield who, *run(options, command)


def finish(options, rows, figures):
    """Prints the machine and a table's rows, and writes the figures where --json says."""
    print(f"{machine()}, {options.rounds} rounds{', real-time priority' if options.priority else ''}\n")
    print("\n".join(rows))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1) + "\n")
