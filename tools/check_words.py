#!/usr/bin/env python3
"""Comments are sentences in plain English: check_words.py [TREE]

Prints one line for each comment that begins with "Of", "What", "Where" or "That", which has no main verb in front, and
for each pictorial word in a comment or a name of the code or a page of docs/, with the plain word; exit 1 if there
is one. The change log, which tells of earlier versions, is not looked at.
"""
import pathlib
import re
import sys

from check_citations import tracked

MARK = {".cc": "//", ".h": "//", ".cu": "//", ".inc": "//", ".proto": "//", ".py": "#", ".cmake": "#", ".txt": "#"}
OPENER = re.compile(r"(?:Of|What|Where|That)\b")
PLAIN = {"seat": "placement, rank", "ballot": "vote", "goodbye": "leave", "nurse": "supervise", "obey": "apply, follow",
         "bad luck": "fault", "so-many": "every n-th", "nobody alive": "weak references"}
WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")   # of a name such as LeavesTheGroup
PICTURE = re.compile(r"(?<![a-zA-Z])(" + "|".join(PLAIN) + r")(?:s|ed|ing|th)?(?![a-zA-Z])")
THIS = ("tools/check_words.py", "tools/tests/check_words_test.py", "CHANGELOG.md")


def openers(mark, lines):
    """The comments' first lines that begin with such a word; a comment goes on while lines are comments."""
    within = False
    for number, line in enumerate(lines, 1):
        whole = re.match(rf"\s*{mark}+<?\s?(.*)", line)
        comment = whole or re.search(rf"\s{mark}\s(.*)", line)
        if comment and not (whole and within) and OPENER.match(comment[1]):
            yield number, comment[1]
        within = bool(whole and whole[1])


def faults(root):
    for name in tracked(root):
        path = root / name
        mark = MARK.get(path.suffix)
        if name in THIS or not path.is_file() or not (mark or path.suffix == ".md"):
            continue
        lines = path.read_text(errors="replace").splitlines()
        for number, comment in openers(mark, lines) if mark else ():
            yield f"{name}:{number}: begins with {comment.split()[0]}: give the sentence a subject and a verb"
        for number, line in enumerate(lines, 1):
            for word in PICTURE.findall(WORDS.sub("_", line).lower()):
                yield f"{name}:{number}: {word}: say {PLAIN[word]}"


if __name__ == "__main__":
    found = list(faults(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    print("\n".join(found) or "words: comments begin as sentences do")
    sys.exit(bool(found))
