#!/usr/bin/env python3
"""Every installed header compiles alone, from the installed tree.

  headers_test.py STAGE COMPILER all|plain [TORCH_INCLUDE…]     `plain`: only those that need no LibTorch
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys

stage, compiler, which, *torch = sys.argv[1:]
include = pathlib.Path(stage) / "include"
flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas",
         "-Wno-missing-field-initializers", "-x", "c++", f"-I{include}",
         *(word for folder in torch for word in ("-isystem", folder))]


def needs_libtorch(name, seen):
    if name in seen:
        return False
    seen.add(name)
    text = (include / name).read_text()
    return bool(re.search(r"#include <(ATen|torch|c10)/", text)) or any(
        needs_libtorch(other, seen) for other in re.findall(r'#include "(trireme/[^"]+)"', text))


def fault(name):
    done = subprocess.run([compiler, *flags, "-"], input=f'#include "{name}"\n', capture_output=True, text=True, check=False)
    return f"{name} does not compile alone:\n{done.stderr}" if done.returncode else ""


names = sorted(str(path.relative_to(include)) for path in include.rglob("*.h"))
chosen = names if which == "all" else [name for name in names if not needs_libtorch(name, set())]
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    faults = [text for text in pool.map(fault, chosen) if text]
print("\n".join(faults) or f"{len(chosen)} of {len(names)} installed headers compile alone")
# More would mean that a public header pulled in a part of the inside.
sys.exit(bool(faults) or not chosen or len(names) > 40)
