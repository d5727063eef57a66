#!/usr/bin/env python3
"""An all-reduce, a schedule, an optimizer or a level of ZeRO is named in its own file only: check_one_place.py

Each is one file with an entry (name, generator, cost or bounds, words for the documents) or with an
optimizer's options, and one line in list.inc; help texts, tests, tables and pictures ask the registry.
So a string of the product that names one is a fault, unless ALLOWED says why it is there. A file with
an entry that list.inc lacks, and a line without its entry, are faults, too.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
REGISTRIES = ("trireme/comm/rounds/algorithms", "trireme/plan/schedule/generators",
              "trireme/kernel/optimizers", "trireme/sync/levels")

# (name of a file, name): why the product names it there.
ALLOWED = {
    ("selection.cc", "naive"): "what a group of one rank runs: nothing",
    ("pipeline_plan.h", "1f1b"): "what a pipeline of one rank runs: each micro-batch forward, then back",
    ("calls.cc", "naive"): "the all-to-all of that name",
    ("calls.cc", "tree"): "the reduce of that name",
    ("calls.cc", "central"): "the gather and the scatter of that name",
    ("pairwise.cc", "naive"): "the all-to-all of that name",
    ("hierarchical.cc", "halving_doubling"): "its middle part",
    ("mixing.cc", "ring"): "the gossip graph of that name",
    ("tree_sum.cc", "tree"): "draws the tree of the sum",
    ("training_plan.h", "1f1b"): "default",
    ("strategy.h", "1f1b"): "default",
    ("schema.cc", "1f1b"): "default",
    ("optimizer_keys.cc", "adamw"): "default",
    ("bench_server.cc", "ring"): "default: sends the least a round",
    ("bench_server.cc", "halving_doubling"): "default: sends the least with few rounds",
    ("show.cc", "1f1b"): "example",
    ("named_strategies.cc", "gpipe"): "what the strategy GPipe means",
    ("named_strategies.cc", "1f1b"): "what the strategy 1F1B means",
    ("show_schedule.cc", "1f1b"): "example",
    ("show_partition.cc", "1f1b"): "one of its two rules of memory",
    ("choice.h", "plain"): "default",
    ("data_parallel.h", "plain"): "default",
    ("strategy.h", "plain"): "default",
    ("sync_plan.h", "plain"): "default",
    ("training_plan.h", "plain"): "default",
    ("schema.cc", "plain"): "default",
    ("forward_model.cc", "plain"): "one rank evaluates, with all of the weights",
    ("named_strategies.cc", "plain"): "what the strategies OneDevice, Mirrored and others mean",
    ("named_strategies.cc", "zero1"): "what the strategy ZeRO1 means",
    ("named_strategies.cc", "zero2"): "what the strategy ZeRO2 means",
    ("named_strategies.cc", "zero3"): "what the strategy ZeRO3 means",
    ("named_strategies.cc", "hybrid"): "what the strategy Hybrid means",
    ("hybrid.cc", "zero3"): "what it is within a host",
    ("determinism.cc", "zero3"): "example",
    ("convert.cc", "zero3"): "example",
    ("commands.cc", "zero1"): "the drawing of that name",
    ("commands.cc", "zero3"): "the drawing of that name",
    ("cli.cc", "zero1"): "the drawing of that name",
    ("cli.cc", "zero3"): "the drawing of that name",
    ("show_steps.cc", "zero1"): "the drawing of that name",
    ("show_zero3.cc", "zero3"): "the drawing of that name",
    ("zero3.cc", "zero3"): "the drawing of that name",
    ("recorded_steps.cc", "zero1"): "what is drawn",
    ("record_zero3.cc", "zero3"): "what is drawn",
}

TOKEN = re.compile(r'//[^\n]*|^#include[^\n]*|"((?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)\'', re.MULTILINE)
ENTRY = re.compile(r"(\w+)_(?:entry|level)\(\) \{\s*return \{(.*?)\};\n", re.DOTALL)
OPTIONS = re.compile(r'^TRIREME_OPTIMIZER\(.*? kName = "(\w+)"', re.DOTALL | re.MULTILINE)
LINE = re.compile(r'^(?:TRIREME_\w+\((\w+)\)|#include ".*/(\w+)\.inc")$', re.MULTILINE)


def entries(folder):
    """{what its line names: (file, name)} of a registry's folder."""
    found = {path.stem: (path, match[1]) for path in sorted(folder.glob("*.inc"))
             if (match := OPTIONS.search(path.read_text()))}
    for path in sorted(folder.glob("*.cc")):
        for function, body in ENTRY.findall(path.read_text()):
            kind = re.search(r"OpKind::(\w+)", body)
            if kind is None or kind[1] == "AllReduce":
                found[function] = (path, re.search(r'\.name = "([^"]+)"', body)[1])
            else:
                found[function] = (path, None)  # another collective's: its name is not looked for
    return found


def check_list(folder):
    """Faults of list.inc: entries that it lacks, lines without an entry, lines written twice."""
    wanted = set(entries(folder))
    lines = [one or other for one, other in LINE.findall((folder / "list.inc").read_text())]
    faults = [f"{folder.name}/list.inc lacks {name}" for name in sorted(wanted - set(lines))]
    faults += [f"{folder.name}/list.inc: no file defines {name}_entry() or options {name}"
               for name in sorted(set(lines) - wanted)]
    faults += [f"{folder.name}/list.inc has {name} twice"
               for name in sorted({name for name in lines if lines.count(name) > 1})]
    return faults


def names_in(literal, names):
    """A name that is a common word counts only alone; one such as zb-h1 counts within a text, too."""
    for name in names:
        special = re.search(r"[-_0-9]", name)
        if literal == name or special and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", literal):
            yield name


def product(root):
    for path in sorted((root / "trireme").rglob("*")):
        if path.suffix not in (".cc", ".h", ".inc") or path.name.endswith(("_test.cc", "_test.h")):
            continue
        if "testing" not in path.relative_to(root).parts:
            yield path


def check(root, registries=REGISTRIES, allowed=ALLOWED):
    faults, used, homes = [], set(), {}
    for folder in registries:
        faults += check_list(root / folder)
        for path, name in entries(root / folder).values():
            if name is not None:
                homes.setdefault(name, set()).add(path)
    for path in product(root):
        where = path.relative_to(root).as_posix()
        text = path.read_text()
        for token in TOKEN.finditer(text):
            for name in names_in(token[1] or "", homes):
                if path in homes[name]:
                    continue
                if (path.name, name) in allowed:
                    used.add((path.name, name))
                    continue
                line = text.count("\n", 0, token.start()) + 1
                faults.append(f"{where}:{line} names {name}: ask its registry, or say why in ALLOWED")
    faults += [f"ALLOWED: {where} does not name {name} any more"
               for where, name in sorted(set(allowed) - used)]
    return faults


def main():
    faults = check(ROOT)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"one place: {len(list(product(ROOT)))} files")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
