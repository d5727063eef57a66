#!/usr/bin/env python3
"""Runs what a document's console blocks show and compares what they print.

  check_console.py DOCUMENT [--with PROGRAM]…     in the tree's root; exit 1 at the first difference

In a ```console block a line "$ COMMAND" is run by bash (lines that end in \\ go on) and must exit 0,
or with N where the line above the block is <!-- exit N -->; <!-- not run --> leaves a block out, and
<!-- with PROGRAM --> where the command line does not say that PROGRAM is there. The
lines after it are what it prints, stdout and stderr together: each must appear, in any order (ranks
print as they please); "…" stands for anything. build/ means the folder in TRIREME_BUILD, in what is printed too.
"""
import argparse
import collections
import os
import pathlib
import re
import shlex
import subprocess
import sys

BLOCK = re.compile(r"(?:<!--\s*(exit \d+|not run|with \S+)\s*-->\n)?```console\n(.*?)```", re.DOTALL)
Step = collections.namedtuple("Step", "command expected code")


def steps(text, programs=()):
    """The commands of a document with what they print."""
    found = []
    for note, block in BLOCK.findall(text):
        kind, _, value = note.partition(" ")
        if note == "not run" or (kind == "with" and value not in programs):
            continue
        code = int(value) if kind == "exit" else 0
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Step(command, [line for line in output.splitlines() if line.strip()], code))
    return found


def missing_lines(expected, printed):
    """Lines of `expected` that no line of `printed` is."""
    left = [line.rstrip() for line in printed.splitlines()]
    missing = []
    for line in sorted(expected, key=lambda line: "…" in line):   # whole lines first: "…" could take theirs
        if line.strip() == "…":
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.rstrip().split("…")))
        match = next((other for other in left if pattern.fullmatch(other)), None)
        if match is None:
            missing.append(line)
        else:
            left.remove(match)
    return missing


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("document", type=pathlib.Path)
    parser.add_argument("--with", dest="programs", action="append", default=[], metavar="PROGRAM")
    arguments = parser.parse_args()
    document = arguments.document
    found = steps(document.read_text(), arguments.programs)
    if not found:
        sys.exit(f"{document}: no console block to run")
    build = os.environ.get("TRIREME_BUILD", "build")
    for step in found:
        command = re.sub(r"(?<![\w/.-])build/", lambda _: shlex.quote(build) + "/", step.command)
        print("$", command, flush=True)
        done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        print(done.stdout, flush=True)
        if done.returncode != step.code:
            sys.exit(f"{document}: exit {done.returncode}, expected {step.code}: {step.command}")
        missing = missing_lines(step.expected, done.stdout.replace(build + "/", "build/"))
        if missing:
            sys.exit("\n  ".join([f"{document}: not printed by '{step.command}':", *missing]))
    print(f"{document}: {len(found)} commands do what it says")


if __name__ == "__main__":
    main()
