#!/usr/bin/env python3
"""Prints the tests that took longest, from ctest's own lines: slowest_tests.py LOG COUNT."""
import pathlib
import re
import sys

# " 12/317 Test #34: tests/cli/fit ....   Passed   93.54 sec", or "...***Failed    0.54 sec".
LINE = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) \.*[ *]*\w.*? +([\d.]+) sec")


def slowest(log, count):
    """(seconds, name) of the `count` slowest; of a test that ran in two builds the longer time."""
    times = {}
    for line in log.splitlines():
        found = LINE.match(line)
        if found:
            times[found[1]] = max(times.get(found[1], 0), float(found[2]))
    return sorted(((seconds, name) for name, seconds in times.items()), reverse=True)[:count]


def main():
    for seconds, name in slowest(pathlib.Path(sys.argv[1]).read_text(errors="replace"), int(sys.argv[2])):
        print(f"  {seconds:6.1f} s  {name}")


if __name__ == "__main__":
    main()
