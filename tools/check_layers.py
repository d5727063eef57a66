#!/usr/bin/env python3
"""Proves layers.txt: who may include whom, and who may see which third-party header.

  check_layers.py [TREE]      prints one line for each violation, exit 1 if there is one

Rules (docs/architecture.md, "Who may include whom"):
  floors     a module includes itself and what layers.txt lists, which lies lower or on its own floor;
             CMake's DEPS say no more than layers.txt; only tests include trireme/testing
  siblings   the sub-folders of net/ and layers/ do not see one another, not even through a header
  torch      modules without the mark see no LibTorch header, not even through one of ours;
             torch/torch.h stands in examples/ alone
  together   no file sees gRPC or protobuf and LibTorch at once, also through our headers
  backends   comm's engine, communicators and operations name no backend
  blocking   floors 2-12 name no condition_variable, sleep or steady_clock: base::Waiter blocks
  public     examples/ include trireme/trireme.h or trireme/job.h only; job.h sees no LibTorch
  tests      none skips itself: what cannot run here is not registered
"""
import collections
import functools
import os
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL)
TORCH = re.compile(r"^(ATen|torch|c10|caffe2)/")
APART = re.compile(r"^(grpc|grpcpp|google/protobuf)/|\.pb\.h$")
# The Waiter's own sleep (waiter.sleep, waiter->sleep) is allowed: it runs on the Waiter's clock.
BLOCKING = re.compile(r"\b(condition_variable(?:_any)?|sleep_for|sleep_until|usleep|nanosleep"
                      r"|clock_nanosleep|steady_clock)\b|(?<![.>\w])(sleep)\s*\(")
DEPS = re.compile(r"trireme_module\(\s*(\w+)([^)]*)\)")
SIBLINGS = ("net", "layers")
FREE_HEADERS = ("trireme/job.h",)

Module = collections.namedtuple("Module", "floor name torch allowed")


def parse_layers(text):
    """{name: Module} and the faults of the file itself."""
    modules, faults = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"(\d+|-) ([\w/]+)( torch)?:(.*)", line)
        if not match:
            faults.append(f"layers.txt:{number}: not 'floor module [torch]: modules…': {line}")
            continue
        floor = None if match[1] == "-" else int(match[1])
        modules[match[2]] = Module(floor, match[2], bool(match[3]), match[4].split())
    for module in modules.values():
        for name in module.allowed:
            other = modules.get(name)
            if other is None:
                faults.append(f"layers.txt: {module.name} may include {name}, which is no module")
            elif module.floor is not None and (other.floor is None or other.floor > module.floor):
                faults.append(f"layers.txt: {module.name} (floor {module.floor}) may include {name} "
                              f"(floor {other.floor}), which lies above")
            elif other.torch and not module.torch:
                faults.append(f"layers.txt: {module.name} is without LibTorch but may include {name}")
            elif module.name in other.allowed:
                faults.append(f"layers.txt: {module.name} and {name} may include one another")
    return modules, faults


def is_test(path):
    return path.name.endswith(("_test.cc", "_bench.cc", "_test.h"))


class Tree:
    """The sources of one checkout: what each includes, directly and through our own headers."""

    def __init__(self, root):
        self.root = root
        self.modules, self.faults = parse_layers((root / "layers.txt").read_text())
        self.files = [path.relative_to(root) for folder in
                      ("trireme", "apps", "examples", "tests", "bench")
                      for path in sorted((root / folder).rglob("*")) if path.suffix in (".cc", ".h", ".inc", ".cu")]

    @functools.cache
    def text(self, path):
        return (self.root / path).read_text(errors="replace")

    @functools.cache
    def includes(self, path):
        """[(line, name)]: one of ours by its path in the tree, also if it is written as ../net/a.h."""
        matches = [(number, INCLUDE.match(line)) for number, line in enumerate(self.text(path).splitlines(), 1)]
        return [(number, self.own(path, match[2]) or match[2]) for number, match in matches if match]

    @functools.cache
    def own(self, path, name):
        """The path in the tree of our file that `name` means in `path`, or None."""
        for candidate in (path.parent / name, name):
            found = os.path.normpath(candidate)
            if (self.root / found).is_file():
                return found
        return None

    @functools.cache
    def closure(self, path):
        """{included name: the chain of our files that leads to it}, through our own headers."""
        found, queue = {}, collections.deque([(path, (str(path),))])
        while queue:
            here, chain = queue.popleft()
            for _, name in self.includes(here):
                if name in found:
                    continue
                found[name] = chain
                if self.own(here, name):
                    queue.append((pathlib.Path(name), chain + (name,)))
        return found

    def module_of(self, path):
        """The module of a file: its folder below trireme/, or a sub-folder that layers.txt names."""
        parts = pathlib.Path(path).parts
        if len(parts) <= 2 or parts[0] != "trireme":
            return None
        below = "/".join(parts[1:3])
        return below if below in self.modules and len(parts) > 3 else parts[1]


def chain_text(chain, name):
    return " > ".join((*chain[1:], name)) if len(chain) > 1 else name


def check_floors(tree):
    for path in tree.files:
        name = tree.module_of(path)
        if name is None:
            continue
        module = tree.modules.get(name)
        if module is None:
            yield f"{path}: module {name} is not in layers.txt"
            continue
        for line, included in tree.includes(path):
            other = tree.module_of(included)
            if included.startswith("trireme/") and other is None:
                yield f"{path}:{line}: {name} includes the public {included}; include what it needs itself"
            elif other in (None, name) or other in module.allowed:
                continue
            elif is_test(path) and other in tree.modules and tree.modules[other].floor is None:
                continue
            else:
                yield (f"{path}:{line}: {name} (floor {module.floor}) may not include {other}; "
                       f"layers.txt allows {' '.join(module.allowed) or 'nothing'}")


def check_cmake(tree):
    of_target = {name.replace("/", "_"): module for name, module in tree.modules.items()}
    for path in sorted((tree.root / "trireme").rglob("CMakeLists.txt")):
        for name, rest in DEPS.findall(path.read_text()):
            module = of_target.get(name)
            where = path.relative_to(tree.root)
            words = rest.split()
            deps, reading = [], False
            for word in words:
                if word.isupper() and word.isidentifier():
                    reading = word == "DEPS"
                elif reading:
                    deps.append(word)
            if module is None:
                yield f"{where}: module {name} is not in layers.txt"
                continue
            for dep in deps:
                if dep not in module.allowed:
                    yield (f"{where}: DEPS names {dep}, which "
                           f"layers.txt does not allow {name}")
            if ("LIBTORCH" in words) != module.torch:
                yield (f"{where}: LIBTORCH and the mark 'torch' in "
                       "layers.txt differ")


def check_siblings(tree):
    for path in tree.files:
        parts = path.parts
        if len(parts) < 4 or parts[0] != "trireme" or parts[1] not in SIBLINGS:
            continue
        for included, chain in tree.closure(path).items():
            other = pathlib.Path(included).parts
            if (len(other) >= 4 and other[:2] == parts[:2] and other[2] != parts[2]):
                yield (f"{path}: {parts[1]}/{parts[2]} sees its sibling {parts[1]}/{other[2]} "
                       f"through {chain_text(chain, included)}")


def check_torch(tree):
    for path in tree.files:
        for line, included in tree.includes(path):
            if included == "torch/torch.h" and path.parts[0] != "examples":
                yield f"{path}:{line}: torch/torch.h costs 20 s; include the narrow header"
        name = tree.module_of(path)
        free = str(path) in FREE_HEADERS or (name in tree.modules and not tree.modules[name].torch)
        seen = tree.closure(path)
        torch = next(((n, c) for n, c in seen.items() if TORCH.match(n)), None)
        apart = next(((n, c) for n, c in seen.items() if APART.search(n)), None)
        if torch and free:
            yield f"{path}: {name or path.name} is without LibTorch but sees {chain_text(torch[1], torch[0])}"
        if torch and apart:
            yield (f"{path}: sees LibTorch ({chain_text(torch[1], torch[0])}) together with "
                   f"{chain_text(apart[1], apart[0])}")


def check_blocking(tree):
    for path in tree.files:
        module = tree.modules.get(tree.module_of(path))
        if module is None or module.floor is None or not 2 <= module.floor <= 12:
            continue
        # Keep the newlines, so that line numbers stay right.
        code = NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), tree.text(path))
        for number, line in enumerate(code.splitlines(), 1):
            match = BLOCKING.search(line)
            if match:
                yield f"{path}:{number}: {match[1] or match[2]} in floor {module.floor}; block through base::Waiter"


def check_backends(tree):
    """What runs a collective is a comm::Backend; its callers know none of them by name."""
    for path in tree.files:
        if path.parent.as_posix() != "trireme/comm" and path.stem != "operation" or is_test(path) \
                or path.stem not in ("engine", "group", "communicator", "communicator_options", "operation"):
            continue
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            match = re.search(r"(?i)gpu|nccl|\bmpi", line)
            if match:
                yield f"{path}:{number}: {match[0]} belongs to a Backend"


def check_public(tree):
    for path in tree.files:
        if path.parts[0] != "examples":
            continue
        for line, included in tree.includes(path):
            if included.startswith("trireme/") and included not in ("trireme/trireme.h", "trireme/job.h"):
                yield f"{path}:{line}: an example includes trireme/trireme.h or trireme/job.h, not {included}"


def check_tests(tree):
    for path in tree.files:
        if "GTEST_SKIP" in tree.text(path):
            yield f"{path}: GTEST_SKIP; what cannot run here is not registered by CMake"


def violations(root):
    tree = Tree(root)
    found = list(tree.faults)
    for check in (check_floors, check_cmake, check_siblings, check_torch, check_blocking, check_backends,
                  check_public, check_tests):
        found += check(tree)
    return tree, found


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1]
    tree, found = violations(root)
    for line in found:
        print(line)
    if not tree.files:
        sys.exit("layers: no source was found")
    if found:
        sys.exit(f"layers: {len(found)} violation(s) in {len(tree.files)} files")
    print(f"layers: {len(tree.files)} files, {len(tree.modules)} modules, as layers.txt says")


if __name__ == "__main__":
    main()
