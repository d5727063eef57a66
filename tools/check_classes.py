#!/usr/bin/env python3
"""No class of the product has more than 25 methods: check_classes.py [TREE]

Prints one line for each class that has more, exit 1 if there is one. A method is a member function that the body of a
class, struct or union declares, public or not: overloads, operators, static functions and templates, each of them.
Constructors, destructors, what is `= default` or `= delete`, friends and data members (also those that hold a
function) are none; a nested class is counted by itself. Tests and trireme/testing are not read.

It reads C++ without a compiler: comments, literals, directives and the branches behind #else are left out, and a name
in capitals with an underscore is a macro.
"""
import pathlib
import re
import sys

MOST = 25
LEFT_OUT = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                      r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)
TOKEN = re.compile(r"[A-Za-z_]\w*|\d(?:'?[\w.])*|::|->|\S")
NAME = re.compile(r"[A-Za-z_]\w*$")
MACRO = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*$|__\w+$")
OPEN, CLOSED = ("(", "[", "{"), (")", "]", "}")
NO_PARAMETERS = ("alignas", "decltype", "explicit", "noexcept", "sizeof")   # may stand before a parenthesis
NO_METHOD = ("friend", "using", "typedef", "static_assert", "enum")


def code_of(text):
    """The text without comments, literals, directives and the branches behind #else, on the same lines."""
    text = LEFT_OUT.sub(lambda match: '""' * (match[0][0] in '"R') + "\n" * match[0].count("\n"), text)
    lines, off, directive = [], [], False   # off: for each open #if, whether this is not its first branch
    for line in text.split("\n"):
        begins = None if directive else re.match(r"\s*#\s*(if|el|endif)?", line)
        hidden = directive or begins or any(off)
        directive = bool(directive or begins) and line.endswith("\\")
        lines.append("" if hidden else line)
        word = begins and begins[1]
        if word == "if":
            off.append(False)
        elif word and off:
            off[-1:] = [True] if word == "el" else []
    return "\n".join(lines)


class Source:
    """The tokens of a file. after_x(i) is the index behind the x that begins at token i."""

    def __init__(self, text):
        code = code_of(text)
        matches = list(TOKEN.finditer(code))
        self.tokens = [match[0] for match in matches] + [""] * 3
        self.lines, line, at = [], 1, 0
        for match in matches:
            line += code.count("\n", at, match.start())
            at = match.start()
            self.lines.append(line)

    def after_bracket(self, i):
        depth = 0
        while self.tokens[i]:
            depth += (self.tokens[i] in OPEN) - (self.tokens[i] in CLOSED)
            i += 1
            if depth <= 0:
                break
        return i

    def after_angle(self, i):
        """`<` without its `>` is a comparison: only that is skipped."""
        begin, depth = i, 0
        while self.tokens[i] and self.tokens[i] != ";" and self.tokens[i] not in CLOSED:
            if self.tokens[i] in OPEN:
                i = self.after_bracket(i)
                continue
            depth += (self.tokens[i] == "<") - (self.tokens[i] == ">")
            i += 1
            if depth == 0:
                return i
        return begin + 1

    def after_name(self, i):
        """a, a::b<c>::d or nothing."""
        while True:
            i += self.tokens[i] == "::"
            if not NAME.match(self.tokens[i]):
                return i
            i += 1
            if self.tokens[i] == "<":
                i = self.after_angle(i)
            if self.tokens[i] != "::":
                return i

    def after_attributes(self, i):
        """[[...]], alignas() and macros."""
        while True:
            if self.tokens[i] == self.tokens[i + 1] == "[":
                i = self.after_bracket(i)
            elif self.tokens[i] == "alignas" or MACRO.match(self.tokens[i]):
                i += 1
                if self.tokens[i] == "(":
                    i = self.after_bracket(i)
            else:
                return i

    def after_requires(self, i):
        while True:
            i += 1   # requires, && or ||
            if self.tokens[i] == "requires":   # (parameters) {...}
                i += 1
                if self.tokens[i] == "(":
                    i = self.after_bracket(i)
            i = self.after_bracket(i) if self.tokens[i] in OPEN else self.after_name(i)
            if self.tokens[i] not in ("&", "|") or self.tokens[i + 1] != self.tokens[i]:
                return i
            i += 1

    def after_statement(self, i):
        """What ends with `;`, or with its body if that is a friend's."""
        while self.tokens[i] and self.tokens[i] != ";":
            if self.tokens[i] not in OPEN:
                i += 1
                continue
            body = self.tokens[i] == "{"
            i = self.after_bracket(i)
            if body and self.tokens[i] not in (";", ","):
                return i
        return i + 1

    def after_initializers(self, i):
        """: a(1), B<C>{}..."""
        while self.tokens[i] in (":", ","):
            i = self.after_bracket(self.after_name(i + 1))
            while self.tokens[i] == ".":
                i += 1
        return i

    def after_operator(self, i):
        """operator and what names it, before its parameters."""
        i += 1
        if self.tokens[i] in ("(", "["):
            return i + 2
        while self.tokens[i] and self.tokens[i] != "(":
            conversion = self.tokens[i] == "<" and NAME.match(self.tokens[i - 1]) and self.tokens[i - 1] != "operator"
            i = self.after_angle(i) if conversion else i + 1
        return i

    def rest_of_function(self, i):
        """(index behind the function whose parameters end before i, whether it is there)."""
        there = True
        while self.tokens[i] and self.tokens[i] not in (";", "{", ":"):
            if self.tokens[i] == "requires":
                i = self.after_requires(i)
            elif self.tokens[i] in OPEN:
                i = self.after_bracket(i)
            elif self.tokens[i] == "<":
                i = self.after_angle(i)
            else:
                there &= not (self.tokens[i] == "=" and self.tokens[i + 1] in ("default", "delete"))
                i += 1
        i = self.after_initializers(i)
        if self.tokens[i] != "{":
            return i + 1, there
        i = self.after_bracket(i)
        while self.tokens[i] == "catch":
            i = self.after_bracket(self.after_bracket(i + 1))
        return i, there

    def definition(self, i):
        """(name, index of its `{`) of the class that is defined at i, or None."""
        if self.tokens[i] not in ("class", "struct", "union") or self.tokens[i - 1] == "enum":
            return None
        begin = self.after_attributes(i + 1)
        at = end = self.after_name(begin)
        at += self.tokens[at] == "final"
        if self.tokens[at] == ":":
            while self.tokens[at] and self.tokens[at] not in ("{", ";", ")"):
                at = self.after_angle(at) if self.tokens[at] == "<" else at + 1
        return ("".join(self.tokens[begin:end]), at) if self.tokens[at] == "{" else None

    def member(self, i, name):
        """(index behind what the class `name` declares at i, whether that is a method)."""
        if self.tokens[i] in ("public", "protected", "private") and self.tokens[i + 1] == ":":
            return i + 2, False
        i = self.after_attributes(i)
        while self.tokens[i] in ("template", "requires"):
            i = self.after_requires(i) if self.tokens[i] == "requires" else self.after_angle(i + 1)
        i = self.after_attributes(i)
        if self.tokens[i] in NO_METHOD:
            return self.after_statement(i), False
        while self.tokens[i] and self.tokens[i] not in (";", "}"):
            token, nested = self.tokens[i], self.definition(i)
            if nested:
                i = self.after_bracket(nested[1])
            elif token == "operator":
                return self.rest_of_function(self.after_bracket(self.after_operator(i)))
            elif token in ("=", "{", ":"):   # data with a value, or of some bits
                while self.tokens[i] and self.tokens[i] != ";":
                    i = self.after_bracket(i) if self.tokens[i] in OPEN else i + 1
            elif token == "(":
                before, inside = self.tokens[i - 1], i + 1
                while self.tokens[inside + 1] == "::":
                    inside += 2
                pointer = self.tokens[inside] in ("*", "&")   # to a function, or with it to a member
                special = before == name or self.tokens[i - 2] == "~"
                i = self.after_bracket(i)
                if NAME.match(before) and before not in NO_PARAMETERS and not pointer and not MACRO.match(before):
                    end, there = self.rest_of_function(i)
                    return end, there and not special
            else:
                i = self.after_bracket(i) if token == "[" else self.after_angle(i) if token == "<" else i + 1
        return i + 1, False

    def classes(self):
        """(line, name, number of methods) of each class that the file defines."""
        for i, line in enumerate(self.lines):
            found = self.definition(i)
            if not found:
                continue
            name, at = found
            short = re.sub(r"<.*", "", name).split("::")[-1]
            methods, at, end = 0, at + 1, self.after_bracket(at) - 1
            while at < end:
                at, method = self.member(at, short)
                methods += method
            yield line, name or "a class without a name", methods


def violations(root):
    """One line for each class with too many methods, and the number of classes."""
    found, classes = [], 0
    for path in sorted((root / "trireme").rglob("*")):
        where = path.relative_to(root)
        if path.suffix not in (".h", ".cc") or where.parts[1] == "testing" or "_test." in path.name:
            continue
        for line, name, methods in Source(path.read_text(errors="replace")).classes():
            classes += 1
            if methods > MOST:
                found.append(f"{where}:{line}: {name} has {methods} methods, and {MOST} are the most; move those that "
                             "share some of its members into a class of their own, and make those that use none free")
    return found, classes


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1]
    found, classes = violations(root)
    for line in found:
        print(line)
    if not classes:
        sys.exit("classes: no class was found")
    if found:
        sys.exit(f"classes: {len(found)} of {classes} have more than {MOST} methods")
    print(f"classes: {classes}, none with more than {MOST} methods")


if __name__ == "__main__":
    main()
