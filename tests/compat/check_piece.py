#!/usr/bin/env python3
"""Runs a program of examples/pieces and compares its numbers with PyTorch's, within 1e-6.

    check_piece.py GOLDEN NAME PROGRAM

A line is "name value". `weights` is given a file to write, `tensorboard` a folder, whose event file is then
read as TensorBoard reads it: TFRecords of protocol buffers, both taken apart here. Python alone.
"""

import collections
import json
import pathlib
import struct
import subprocess
import sys
import tempfile


def difference(wanted, got):
    """What differs, or None."""
    if wanted.keys() != got.keys():
        return f"names {sorted(got)} instead of {sorted(wanted)}"
    for name, values in wanted.items():
        if len(values) != len(got[name]):
            return f"{len(got[name])} values of {name} instead of {len(values)}"
        for i, (one, other) in enumerate(zip(values, got[name])):
            if not abs(one - other) <= 1e-6 * max(1, abs(one)):
                return f"{name}[{i}] is {other!r} instead of {one!r}"
    return None


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, value) of a protocol buffer's fields: varints, fixed ones and bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        yield key >> 3, value


def scalars(path):
    """{tag: [values]} of an event file, each tag's steps ascending."""
    data, at = path.read_bytes(), 0
    said = collections.defaultdict(list)
    steps = collections.defaultdict(list)
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = dict(fields(data[at + 12:at + 12 + length]))
        at += 12 + length + 4
        for number, value in fields(event.get(5, b"")):
            if number != 1:
                continue
            one = dict(fields(value))
            tag = one[1].decode()
            said[tag].append(one[2])
            steps[tag].append(event.get(2, 0))
    assert all(sorted(one) == one for one in steps.values()), steps
    return said


def main():
    golden, name, program = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder) / "out"
        done = subprocess.run([program, place], check=True, stdout=subprocess.PIPE, text=True)
        if name == "tensorboard":
            said = scalars(next(place.iterdir()))
        else:
            said = collections.defaultdict(list)
            for line in done.stdout.splitlines():
                key, value = line.split()
                said[key].append(float(value))
    fault = difference(json.loads(pathlib.Path(golden).read_text())[name], said)
    if fault:
        sys.exit(f"{name}: {fault}")
    print(f"{name}: {sum(map(len, said.values()))} numbers are PyTorch's")


if __name__ == "__main__":
    main()
