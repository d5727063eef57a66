"""What the benches of training steps share: options, this tree's command, programs that take turns, what is written.

Programs take turns, round by round, so that all see the same minutes of the machine; a run's first steps do not count."""
import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WARM_UP = 3


def parser(about, rounds=3, steps=10):
    """Of a bench whose docstring is `about`: --build, --rounds, --steps, --json."""
    found = argparse.ArgumentParser(description=about.splitlines()[0])
    found.add_argument("--build", default=str(HERE.parent / "build"))
    found.add_argument("--rounds", type=int, default=rounds)
    found.add_argument("--steps", type=int, default=steps)
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


def in_turns(options, commands):
    """`commands(number)`: who -> command, of one round. Yields each one's (who, *run(command)) as it ends."""
    for number in range(options.rounds):
        for who, command in commands(number).items():
            name = who if isinstance(who, str) else ", ".join(str(one) for one in who)
            print(f"round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
            yield who, *run(command)


def finish(options, rows, figures):
    """Prints a table's rows, and writes the figures where --json says."""
    print("\n".join(rows))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")
