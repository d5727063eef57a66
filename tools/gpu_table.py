"""The section of docs/gpu.md that tools/gpu_pass writes, from what its tasks found."""
import re

MARKS = re.compile(r"(<!-- gpu pass -->\n).*?(<!-- end -->)", re.DOTALL)


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def gigabytes(found, name):
    return f"{found[name] / 1e9:.1f} GB" if found.get(name) else "-"


def machine_line(machine):
    gpus = machine["gpus"]
    named = f"{len(gpus)} x {gpus[0]}" if gpus else f"no GPU ({machine['machine']})"
    versions = [f"{title} {machine[key]}" for key, title in (("driver", "driver"), ("cuda", "CUDA"), ("nccl", "NCCL"),
                                                             ("torch", "LibTorch")) if machine[key]]
    return f"Run on {named}, {', '.join(versions)}; commit {machine['commit']}, {machine['date']}."


def checks(found):
    """Of tests/gpu and of the hashes: lines of a list."""
    lines = []
    if tests := found("tests"):
        lines.append(f"- `tests/gpu` by the real driver and NCCL, on up to {tests['gpus']} GPUs: {tests['tests']} of "
                     f"{tests['of']} tests ran and passed; the others need more GPUs.")
    for precision in ("fp32", "bf16"):
        trained = {ranks: one for ranks in (1, 2, 4) if (one := found(f"hash-{precision}-{ranks}"))}
        recorded = found(f"hash-{precision}-1-graphs")
        hashes = {ranks: one["hash"] for ranks, one in trained.items()}
        if recorded:
            hashes["1 with graphs"] = recorded["hash"]
        if hashes:
            said = ("the same weights" if len(set(hashes.values())) == 1 else
                    "**different weights**: " + ", ".join(f"{ranks}: {one[:12]}" for ranks, one in hashes.items()))
            lines.append(f"- gpt-nano in {precision} on one GPU (ranks: {', '.join(map(str, hashes))}): {said}.")
        if recorded and 1 in trained:
            lines.append(f"- Its step on one rank: {trained[1]['step_seconds'] * 1e3:.2f} ms, "
                         f"{recorded['step_seconds'] * 1e3:.2f} ms with `train.graphs`.")
    for algorithm, title in (("auto", "reproducible"), ("nccl-native", "NCCL's own order")):
        if one := found(f"bandwidth-{algorithm}"):
            lines.append(f"- All-reduce of {one['bytes'] / 2**20:,.0f} MiB by {one['ranks']} GPUs, {title}: "
                         f"{one['bytes_per_second'] / 1e9:.1f} GB/s, {one['bus_bytes_per_second'] / 1e9:.1f} GB/s over "
                         "each one's links.")
    return lines


def speed_rows(found, shapes):
    rows = []
    for shape, numbers in shapes.items():
        tokens = numbers["batch"] * numbers["block"]
        peer = found(f"peer-{shape}".replace(" ", "-"))
        for how, title in (("reproducible", "yes"), ("free", "no")):
            own = found(f"speed-{shape}-{how}".replace(" ", "-"))
            if not own:
                continue
            rows.append(row(shape, f"{tokens:,}", title, f"{tokens / own['step_seconds']:,.0f}",
                            f"{100 * own['mfu']:.1f} %" if "mfu" in own else "-", gigabytes(own, "predicted_bytes"),
                            gigabytes(own, "measured_bytes"),
                            f"{tokens / peer['step_seconds']:,.0f}" if peer else "-", gigabytes(peer, "measured_bytes"),
                            f"{peer['step_seconds'] / own['step_seconds']:.2f}x" if peer else "-"))
    if not rows:
        return []
    return ["", row("bf16, one rank", "tokens a step", "reproducible", "tokens/s", "MFU", "memory planned", "taken",
                    "PyTorch, tokens/s", "its memory", "Trireme / PyTorch"), "|---|---:|---|" + "---:|" * 7, *rows]


def kernel_rows(found, shapes):
    own, peer = found("kernels-own"), found("kernels-peer")
    if not own:
        return []
    theirs = peer.get("classes", {})
    order = sorted(own["classes"].keys() | theirs.keys(), key=lambda title: -own["classes"].get(title, 0))
    rows = [row(title, f"{own['classes'].get(title, 0):.1f} ms", f"{theirs.get(title, 0):.1f} ms" if peer else "-")
            for title in order]
    rows.append(row("all of them", *(f"{sum(one['classes'].values()):.1f} ms in {one['launches']:,.0f} launches"
                                     if one else "-" for one in (own, peer))))
    return ["", row(f"kernels of {next(iter(shapes))}, a step", "Trireme, reproducible", "PyTorch"), "|---|---:|---:|",
            *rows]


def section(found, shapes):
    """`found(name)`: what a task found, or {}. Ends with a newline."""
    results = [*checks(found), *speed_rows(found, shapes), *kernel_rows(found, shapes)]
    if not results:
        return "Not run on a GPU yet: `tools/gpu_pass` writes what it finds here.\n"
    return "\n".join([machine_line(found("machine")), "", *results]) + "\n"


def replaced(page, text):
    """`page` with `text` between its marks. Raises ValueError if it has none."""
    if not MARKS.search(page):
        raise ValueError("the page has no section from <!-- gpu pass --> to <!-- end -->")
    return MARKS.sub(lambda marks: marks[1] + text + marks[2], page)


def write(found, shapes, path, source):
    """Writes the page `source` with the section into `path`."""
    page = source.read_text(encoding="utf-8")
    path.write_text(replaced(page, section(found, shapes)), encoding="utf-8")
