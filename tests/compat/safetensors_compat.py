#!/usr/bin/env python3
"""Python's safetensors reads what Trireme writes, Trireme reads what Python writes, and both refuse
the same damaged files.     safetensors_compat.py path/to/safetensors_tool"""

import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import safetensors.torch
import torch

TOOL = sys.argv[1]


def tool(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True)


def python_reads_ours(folder):
    done = tool("write", folder)
    assert done.returncode == 0, done.stderr
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4))
    weights = safetensors.torch.load_file(folder / "module.safetensors")
    net.load_state_dict(weights, strict=True)
    net.eval()
    example = safetensors.torch.load_file(folder / "example.safetensors")
    torch.testing.assert_close(net(example["input"]), example["output"])
    assert not torch.equal(net[1].running_mean, torch.zeros(4)), "the buffers were not saved"

    types = safetensors.torch.load_file(folder / "types.safetensors")
    dtypes = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16,
              "F16": torch.float16, "I64": torch.int64, "I32": torch.int32, "I16": torch.int16,
              "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
    for name, dtype in dtypes.items():
        expected = torch.tensor([1, 0, 3]).to(dtype)
        assert types[name].dtype == dtype and torch.equal(types[name], expected), name
    assert types["scalar"].shape == () and types["scalar"].item() == 2.5
    assert types["empty"].shape == (0, 3)
    assert len(types) == len(dtypes) + 3 and 'na"me ü\n' in types
    with safetensors.safe_open(folder / "types.safetensors", "pt") as file:
        assert file.metadata()["note"] == "grüß"


def raw(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def we_read_pythons(folder):
    torch.manual_seed(1)
    names = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16",
             torch.float16: "F16", torch.int64: "I64", torch.int32: "I32", torch.int16: "I16",
             torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
    tensors = {f"layer.{i}.{name}": (torch.randn(3, i + 1) * 50).to(dtype)
               for i, (dtype, name) in enumerate(names.items())}
    tensors["empty"] = torch.zeros(0, 2)
    path = folder / "python.safetensors"
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    done = tool("read", path)
    assert done.returncode == 0, done.stderr
    *lines, digest = done.stdout.decode().splitlines()
    seen = {}
    for line in lines:
        name, dtype, shape, total = line.split("|")
        seen[name] = (dtype, shape, int(total))
    expected, stream = {}, hashlib.sha256()
    for name in sorted(tensors):
        tensor, total = tensors[name], 0
        data = raw(tensor)
        for byte in data:
            total = (total * 31 + byte) % 2**64
        dtype = names[tensor.dtype]
        expected[name] = (dtype, "".join(f"{dim}," for dim in tensor.shape), total)
        # trireme/base/weights_hash.h: the hash of `trireme inspect --hash`
        stream.update(name.encode() + b"\0" + dtype.encode() + b"\0")
        stream.update(struct.pack(f"<{1 + tensor.dim()}q", tensor.dim(), *tensor.shape))
        stream.update(struct.pack("<q", len(data)) + data)
    assert seen == expected, (seen, expected)
    assert digest == stream.hexdigest()


def both_refuse(folder):
    def file_with(header, data, length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    def entry(dtype="F32", shape=(2,), begin=0, end=8):
        return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}

    good = file_with({"a": entry()}, bytes(8))
    damaged = {
        "empty": b"", "header cut": good[:20], "data cut": good[:-1], "data left over": good + b"x",
        "length beyond the file": file_with({"a": entry()}, bytes(8), 10**6),
        "length beyond reason": file_with({"a": entry()}, bytes(8), 2**63),
        "no JSON": file_with(b"{", b""), "shape": file_with({"a": entry(shape=(3,))}, bytes(8)),
        "type": file_with({"a": entry(dtype="F33")}, bytes(8)),
        "overlap": file_with({"a": entry(), "b": entry(begin=4, end=12)}, bytes(12)),
        "hole": file_with({"a": entry(), "b": entry(begin=12, end=20)}, bytes(20)),
        "backwards": file_with({"a": entry(begin=8, end=0)}, bytes(8)),
        "overflow": file_with({"a": entry(shape=(2**40, 2**40))}, bytes(8)),
        "name twice": file_with(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                                b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    }
    path = folder / "damaged.safetensors"
    path.write_bytes(good)
    assert tool("read", path).returncode == 0
    safetensors.torch.load_file(path)
    for what, content in damaged.items():
        path.write_bytes(content)
        done = tool("read", path)
        assert done.returncode == 12, (what, done)
        assert str(path) in done.stderr.decode(), (what, done.stderr)
        try:
            safetensors.torch.load_file(path)
        except Exception:
            continue
        # Python takes the last of two equal names; a second one is damage here.
        assert what == "name twice", f"Python reads what we refuse: {what}"


with tempfile.TemporaryDirectory() as name:
    python_reads_ours(pathlib.Path(name))
    we_read_pythons(pathlib.Path(name))
    both_refuse(pathlib.Path(name))
print("safetensors: ours in Python, Python's here, and both refuse the same")
