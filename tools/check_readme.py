#!/usr/bin/env python3
"""Runs README.md as a newcomer would: check_readme.py [README]

Every command of its sh and console blocks is taken in order, then those of the block of docs/guide.md
that says so. `make train` is run with 20 steps and a run folder of its own, which stands for
runs/gpt-nano in what follows; other make targets are only checked to exist; everything else is run and
must exit 0. Its diff block must be what `diff examples/02_data_parallel/before.cc main.cc` says, and
every file it links to must be there.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS = "--set train.steps=20 --set train.warmup=5 --set train.validate_every=10"
RUN_FOLDER = "runs/gpt-nano"


def commands(text):
    """The commands of the shell blocks, in order."""
    found = []
    for kind, block in re.findall(r"```(sh|console)\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if kind == "console" and not line.startswith("$ "):
                continue
            line = re.sub(r"\s+#\s.*$", "", line.removeprefix("$ ")).strip()
            if line and not line.startswith("#"):
                found.append(line)
    return found


def marked(text):
    """The blocks that this tool is to run, of another page."""
    return "".join(re.findall(r"<!-- run by tools/check_readme.py -->\n(```sh\n.*?```\n)", text, re.DOTALL))


def translate(command, folder):
    """What is run for a command of the README, or None where it is none of the tree's."""
    words = command.split()
    if words[0] in ("git", "cd"):
        return None
    if words[:2] == ["make", "train"] and len(words) == 2:
        return f'make train ARGS="{STEPS} --out {folder}"'
    if words[0] == "make":
        return "make --dry-run --silent " + " ".join(words[1:]) + " >/dev/null"
    return re.sub(re.escape(RUN_FOLDER) + r"\b", str(folder), command)


def changed_lines(before, after):
    """The changed lines of the two programs as `diff` marks them, without their places."""
    done = subprocess.run(["diff", str(before), str(after)], capture_output=True, text=True, check=False)
    return [line.replace("<", "-", 1).replace(">", "+", 1).split() for line in done.stdout.splitlines()
            if line.startswith(("<", ">")) and line[1:].strip()]


def diff_faults(text, root):
    block = re.search(r"```diff\n(.*?)```", text, re.DOTALL)
    if not block:
        return ["no diff block"]
    shown = [re.sub(r"^([+-])", r"\1 ", line).split() for line in block[1].splitlines()
             if line.startswith(("+", "-"))]
    folder = root / "examples" / "02_data_parallel"
    real = changed_lines(folder / "before.cc", folder / "main.cc")
    return [f"the diff block differs from examples/02_data_parallel: {' '.join(line)}"
            for line in [*(line for line in shown if line not in real),
                         *(line for line in real if line not in shown)]]


def link_faults(text, root):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    return [f"links to {link}, which is not there" for link in links
            if not link.startswith("http") and not (root / link).exists()]


def main():
    readme = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "README.md"
    text = readme.read_text()
    faults = diff_faults(text, ROOT) + link_faults(text, ROOT)
    if faults:
        sys.exit("\n".join(f"{readme.name}: {fault}" for fault in faults))
    # The outer make that runs ctest must not pass its options on.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")
                   and name != "MFLAGS"}
    with tempfile.TemporaryDirectory() as scratch:
        found = commands(text) + commands(marked((ROOT / "docs" / "guide.md").read_text()))
        if "make train" not in found:
            sys.exit(f"{readme.name}: no `make train`")
        for command in found:
            real = translate(command, pathlib.Path(scratch) / "gpt-nano")
            if real is None:
                continue
            print("$", real, flush=True)
            code = subprocess.run(["bash", "-c", real], cwd=ROOT, env=environment,
                                  stdin=subprocess.DEVNULL, check=False).returncode
            if code != 0:
                sys.exit(f"{readme.name}: exit {code} from: {command}")


if __name__ == "__main__":
    main()
