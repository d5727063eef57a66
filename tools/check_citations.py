#!/usr/bin/env python3
"""Whatever a comment or a page cites as a file is in the tree.

  check_citations.py [TREE]      prints one line for each citation of a missing file, exit 1 if there is one

Looks at comments of C++, CMake and Python files and at the pages of docs/. A citation is a name that ends in .md, or
a path with a slash that ends in .h, .cc, .py or .cmake. It is looked up from the tree's root, in trireme/, in docs/
and in the folder of the citing file; glob stars match. In a page, `folder/name` is one, too, where the folder is a
module or one of the tree's: some file or folder's path must begin so.
"""
import pathlib
import re
import subprocess
import sys

COMMENT = {".cc": r"//(.*)", ".h": r"//(.*)", ".cu": r"//(.*)", ".inc": r"//(.*)", ".py": r"#(.*)", ".cmake": r"#(.*)",
           ".txt": r"#(.*)", ".md": r"(.*)"}
CITED = re.compile(r"(?<![\w/.:-])(?:\.\./)*[\w*][\w./*-]*\.md\b|(?<![\w/.<\"-])[\w*-]+/[\w./*-]+\.(?:h|cc|py|cmake)\b")
NAMED = re.compile(r"`([a-z_0-9]+/[a-z_0-9./*-]+)`")   # without a suffix, in pages
# Folders and files that a page says are gone.
FORMER = ("plan/fit", "train/fit_candidates", "comm/direct/", "comm/algorithms/")
# Files that a user's program or another project has; libraries' headers.
FOREIGN = re.compile(r"NNN-title|^(include/nccl|torch|ATen|c10|grpc\+*|sys|linux|build|runs?|gtest|net/if|TOOLS?|python)[/.]|^(NAME|CHANGES)\.md$|/site-packages/")


def citations(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.search(COMMENT[path.suffix], line)
        if comment and "://" not in comment[1]:
            for cited in CITED.findall(comment[1]):
                yield number, cited


def names(root, text):
    folders = {path.name for home in (root, root / "trireme") for path in home.glob("[a-z]*/")} - {"build", "runs"}
    for number, line in enumerate(text.splitlines(), 1):
        for named in NAMED.findall(line):
            if named.split("/")[0] in folders and named not in FORMER:
                yield number, named.rstrip("*/.") + "*"


def is_there(root, path, cited):
    for folder in (root, root / "trireme", root / "docs", root / "tests", root / "tools", path.parent):
        if "*" in cited and any(folder.glob(cited)) or "*" not in cited and (folder / cited).exists():
            return True
    return False


def tracked(root):
    """The tree's files; where git is not there, refuses or knows none of them, those of its folders."""
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
        if listed:
            return listed.split("\n")
    except (OSError, subprocess.CalledProcessError):
        pass
    folders = [root / name for name in ("apps", "bench", "cmake", "docs", "examples", "tests", "tools", "trireme")]
    found = [*root.glob("*.*"), *(path for folder in folders for path in folder.rglob("*"))]
    return sorted(str(path.relative_to(root)) for path in found)


def faults(root):
    for name in tracked(root):
        path = root / name
        if path.suffix not in COMMENT or name == "CHANGELOG.md" or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        for number, cited in [*citations(path, text), *(names(root, text) if path.suffix == ".md" else ())]:
            if not FOREIGN.search(cited) and not is_there(root, path, cited):
                yield f"{name}:{number}: cites {cited}, which is not in the tree"


if __name__ == "__main__":
    found = list(faults(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    print("\n".join(found) or "citations: every cited file is in the tree")
    sys.exit(bool(found))
