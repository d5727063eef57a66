#!/usr/bin/env python3
"""Prints the files that took longest to compile, from Ninja's own log: slowest_files.py BUILD COUNT."""
import pathlib
import sys


def slowest(log, count):
    """(seconds, output) of the `count` slowest objects; the last entry of an output wins."""
    times = {}
    for line in log.splitlines():
        fields = line.split("\t")
        if len(fields) >= 4 and fields[3].endswith((".o", ".gch")):
            times[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return sorted(((seconds, name) for name, seconds in times.items()), reverse=True)[:count]


def main():
    log = pathlib.Path(sys.argv[1]) / ".ninja_log"
    if not log.is_file():
        print(f"  (no {log})")
        return
    for seconds, name in slowest(log.read_text(), int(sys.argv[2])):
        print(f"  {seconds:6.1f} s  {name}")


if __name__ == "__main__":
    main()
