#!/usr/bin/env python3
"""Code and pictures in the documents are those of the tree: check_snippets.py [--fix]

A C++ block after the line `<!-- examples/NAME/main.cc: PIECE -->` must be what lies between
`// [PIECE]` and `// [/PIECE]` of that file, without the common indentation; a text block after
`<!-- tests/show/golden/NAME.txt -->` must be that file, which the goldens test holds against what
`trireme show` prints. What lies between `<!-- tests/show/golden/NAME.md -->` and `<!-- end -->` (a table
that is made from a registry) must be that file. --fix writes it there.
"""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = re.compile(r"(<!-- (\S+?)(?:: (\w+))? -->\n```(?:cpp|text)\n)(.*?)(```)", re.DOTALL)
MARKDOWN = re.compile(r"(<!-- (\S+\.md)() -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def piece_of(root, path, name):
    """The lines between the marks, the whole file without a name, or None where there is none."""
    try:
        text = (root / path).read_text()
    except FileNotFoundError:
        return None
    if name is None:
        return text
    found = re.search(rf"^ *// \[{name}\]\n(.*?)^ *// \[/{name}\]$", text, re.DOTALL | re.MULTILINE)
    return textwrap.dedent(found[1]) if found else None


def check(root, document, fix):
    """Faults of one document; with fix, its blocks are written anew."""
    faults = []

    def renew(match):
        wanted = piece_of(root, match[2], match[3] or None)
        if wanted is None:
            faults.append(f"{document.name}: there is no piece {match[3] or 'at all'} in {match[2]}")
            return match[0]
        if match[4] != wanted and not fix:
            faults.append(f"{document.name}: {match[3] or 'a picture'} is not what {match[2]} says "
                          "(tools/check_snippets.py --fix)")
        return match[1] + wanted + match[5]

    text = document.read_text()
    renewed = CODE.sub(renew, MARKDOWN.sub(renew, text))
    if fix and renewed != text:
        document.write_text(renewed)
    return faults


def main():
    fix = "--fix" in sys.argv[1:]
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    faults = [fault for document in documents for fault in check(ROOT, document, fix)]
    for fault in faults:
        print(fault, file=sys.stderr)
    count = sum(len(block.findall(document.read_text()))
                for document in documents for block in (CODE, MARKDOWN))
    print(f"snippets: {count} in {len(documents)} documents")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
