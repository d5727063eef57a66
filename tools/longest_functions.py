#!/usr/bin/env python3
"""Prints the longest functions of the C++ sources: longest_functions.py COUNT [MAX].

With MAX it fails if one is longer. A function is found by its braces: Google style puts the opening
one at the end of the head, so a body runs from a line at namespace or class depth that ends in ") {"
(or ") const {" and the like) to the line whose brace closes it. Good enough to know where to look.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAD = re.compile(r"[)\]]\s*(const|noexcept|override|final|mutable|->\s*[\w:<>&*, ]+|\s)*\{\s*$")
STRIP = re.compile(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'|//.*')


def functions(text):
    """(length, first line, head) of every function body."""
    stack, found = [], []
    lines = text.splitlines()
    statement = 0    # first line of the statement being read
    for number, line in enumerate(lines):
        code = STRIP.sub("", line)
        if not code.strip() or code.lstrip().startswith("#"):
            statement = number + 1
            continue
        for character in code:
            if character == "{":
                head = " ".join(lines[statement:number + 1]).strip()
                inside = any(kind == "function" for kind, _, _ in stack)
                stack.append(("scope" if inside or not HEAD.search(code) else "function", statement, head))
                statement = number + 1
            elif character == "}" and stack:
                kind, start, head = stack.pop()
                if kind == "function":
                    found.append((number - start + 1, start + 1, head))
                statement = number + 1
            elif character == ";":
                statement = number + 1
    return found


def main():
    count = int(sys.argv[1])
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else None
    found = []
    for folder in ("trireme", "apps", "examples", "tests", "bench"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".cc", ".h"):
                for length, line, head in functions(path.read_text()):
                    found.append((length, f"{path.relative_to(ROOT)}:{line}", head))
    found.sort(reverse=True)
    for length, place, head in found[:count]:
        print(f"  {length:4d} lines  {place}  {head[:70]}")
    if limit is not None and found and found[0][0] > limit:
        sys.exit(f"a function is longer than {limit} lines: split it")


if __name__ == "__main__":
    main()
