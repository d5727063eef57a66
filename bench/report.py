#!/usr/bin/env python3
"""Tables, plots and the table against target, out of the figures that bench/run_comm.py wrote.

    bench/report.py build/bench/comm.json [--docs docs]

Prints Markdown; with --docs it also writes docs/images/comm-*.svg and replaces the parts of
docs/benchmarks.md that stand between <!-- comm NAME --> and <!-- end -->."""
import argparse
import json
import pathlib
import re

import plot
from plot import text_of

TITLES = {"arena": "arena", "heap": "heap", "over_openmpi": "Trireme over Open MPI",
          "over_mpich": "Trireme over MPICH", "yard": "yard", "stream": "W",
          "openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo", "oneccl": "oneCCL"}
OURS = ("arena", "heap", "over_openmpi", "over_mpich")
BOUNDS = {"yard": "arena", "stream": "arena"}  # each of which column
PEERS = ("openmpi", "mpich", "gloo", "oneccl")
KIB64, MIB = 64 << 10, 1 << 20


def time_of(seconds):
    if seconds is None:
        return "-"
    return f"{seconds * 1e6:.2f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def ratio(theirs, ours):
    return f"{theirs / ours:.2f}x" if theirs and ours else "-"


def markdown_row(cells):
    return "| " + " | ".join(cells) + " |"


def markdown(rows):
    return "\n".join(map(markdown_row, [rows[0], ["---:"] * len(rows[0]), *rows[1:]]))


def sizes_of(figures):
    return sorted({size for one in figures.values() for size in one})


def own_table(figures):
    """Our times, and what bounds them: a ratio of 1 is the bound."""
    ours = [name for name in OURS if name in figures]
    if not ours:
        return ""
    bounds = [name for name in BOUNDS if name in figures]
    head = ["bytes", *(TITLES[name] for name in ours), f"{TITLES[ours[0]]} GB/s"]
    for name in bounds:
        head += [TITLES[name], f"{TITLES[name]} / {BOUNDS[name]}"]
    rows = [head]
    for size in sizes_of(figures):
        first = figures[ours[0]].get(size)
        row = [text_of(size), *(time_of(figures[name].get(size)) for name in ours),
               f"{size / first / 1e9:.2f}" if first else "-"]
        for name in bounds:
            one = figures[name].get(size)
            row += [time_of(one), ratio(one, figures[BOUNDS[name]].get(size))]
        rows.append(row)
    return markdown(rows)


def rivals_of(figures, peer):
    """Which of our columns a peer stands against."""
    if f"over_{peer}" in figures:
        return [f"over_{peer}"]
    return [name for name in ("arena", "heap") if name in figures]


def peer_table(figures):
    """Times of the peers, and behind each how many times longer than ours it took."""
    peers = [name for name in PEERS if name in figures]
    head = ["bytes"]
    for peer in peers:
        head += [TITLES[peer], *(f"/ {TITLES[name]}" for name in rivals_of(figures, peer))]
    rows = [head]
    for size in sizes_of(figures):
        row = [text_of(size)]
        for peer in peers:
            one = figures[peer].get(size)
            row += [time_of(one), *(ratio(one, figures[name].get(size))
                                    for name in rivals_of(figures, peer))]
        rows.append(row)
    return markdown(rows) if peers else ""


def arena_table(arenas):
    """Times in arenas of two buffers each: no size of a buffer may cost more than its neighbours."""
    rows = [["arena", "64 KiB", "1 MiB", "a whole buffer"]]
    for buffer, figures in arenas.items():
        rows.append([f"2 x {text_of(buffer)}",
                     *(time_of(figures.get(size)) for size in (KIB64, MIB, buffer))])
    return markdown(rows)


def tables(figures):
    return "\n\n".join(filter(None, (own_table(figures), peer_table(figures))))


# --- targets --------------------------------------------------------------------------------------

def target(text, least, pairs):
    """A row: `pairs` are (size, theirs / ours); reached where every ratio is at least `least`. 0: ours has no figure."""
    seen = list(pairs)
    if not seen:
        return [text, "not measured", ""]
    missed = [text_of(size) for size, one in seen if one < least]
    shown = ", ".join(f"{text_of(size)} {one:.2f}x" if one else f"{text_of(size)} -" for size, one in seen)
    return [text, shown, "missed at " + ", ".join(missed) if missed else "reached"]


def arena_target(arenas):
    """Every arena against the best of its neighbours, in calls of 64 KiB and 1 MiB."""
    pairs = [(size, min(others) / figures[size])
             for buffer, figures in arenas.items() for size in (KIB64, MIB)
             if size in figures
             and (others := [one[size] for other, one in arenas.items()
                             if other != buffer and size in one])]
    worst = {size: min(one for found, one in pairs if found == size) for size, _ in pairs}
    return target("no arena's size costs over 1.3x its neighbours", 1 / 1.3, worst.items())


class Figures:
    def __init__(self, runs):
        self.runs = {(run["collective"], run["ranks"], run["transport"]): run["seconds"]
                     for run in runs}

    def ratios(self, run, theirs, ours, sizes):
        """(size, theirs / ours) of one table, 0 where only theirs was measured; sizes: those wanted, or the least of all."""
        found = self.runs.get(run, {})
        if ours not in found:
            return []
        return [(size, one / found[ours][size] if size in found[ours] else 0) for size, one in found.get(theirs, {}).items()
                if one and (size in sizes if isinstance(sizes, tuple) else size >= sizes)]

    def targets(self):
        two, four = ("all_reduce", 2, "shm"), ("all_reduce", 4, "shm")
        tcp, mpi = ("all_reduce", 2, "tcp"), ("all_reduce", 2, "mpi")
        of = self.ratios
        rows = [
            target("arena: 90 % of the yardstick", .9, of(two, "yard", "arena", KIB64)),
            target("arena: 70 % of the memory bound W", .7, of(two, "stream", "arena", (128 * MIB,))),
            target("arena: 4x Open MPI", 4, of(two, "openmpi", "arena", KIB64)),
            target("arena, small: within 2.5x of Open MPI", .4, of(two, "openmpi", "arena", (8, 1024))),
            target("heap: 1.5x Open MPI", 1.5, of(two, "openmpi", "heap", KIB64)),
            target("arena, 4 ranks: 4x Open MPI", 4, of(four, "openmpi", "arena", MIB)),
            target("arena, 4 ranks, small: within 2x of Open MPI", .5,
                   of(four, "openmpi", "arena", (8,)))]
        for what in ("all_gather", "reduce_scatter", "broadcast", "all_to_all"):
            rows.append(target(f"{what} in arenas: 2x Open MPI", 2,
                               of((what, 2, "shm"), "openmpi", "arena", KIB64)))
        rows.append(target("TCP on loopback: 2x Gloo", 2, of(tcp, "gloo", "arena", KIB64)))
        rows.append(target("TCP on loopback: the yardstick", .9, of(tcp, "yard", "arena", KIB64)))
        for name in ("openmpi", "mpich"):
            rows.append(target(f"Trireme over {TITLES[name]}: 80 % of its own all-reduce", .8,
                               of(mpi, name, f"over_{name}", KIB64)))
        return markdown([["target, theirs / ours", "seen", ""], *rows])


def parts(everything):
    """name -> Markdown of every part of the document; and name -> SVG of every plot."""
    texts, plots = {}, {}
    for run in everything["runs"]:
        what, ranks, transport = run["collective"], run["ranks"], run["transport"]
        name = f"{what}-{ranks}" + (f"-{transport}" if transport != "shm" else "")
        title = f"{what}, {ranks} ranks, {transport}"
        plots[name] = plot.svg(f"{title}: {everything['machine']}", run["seconds"], TITLES)
        texts[name] = f"![{title}](images/comm-{name}.svg)\n\n{tables(run['seconds'])}"
    texts["machine"] = (f"Machine: {everything['machine']}; {everything['date']}; "
                        f"{everything['how']}.")
    texts["targets"] = Figures(everything["runs"]).targets()
    if "arenas" in everything:
        texts["targets"] += "\n" + markdown_row(arena_target(everything["arenas"]))
        texts["arenas"] = arena_table(everything["arenas"])
    return texts, plots


def load(path):
    everything = json.loads(path.read_text(encoding="utf-8"))
    def with_sizes(many):  # JSON's keys are text
        return {int(size): one for size, one in many.items()}

    for run in everything["runs"]:
        run["seconds"] = {name: with_sizes(many) for name, many in run["seconds"].items()}
    if "arenas" in everything:
        everything["arenas"] = {int(buffer): with_sizes(many)
                                for buffer, many in everything["arenas"].items()}
    return everything


def write_docs(folder, texts, plots):
    """The tables stand in benchmarks.md and in the pages behind it, in the folder benchmarks/."""
    for page in [folder / "benchmarks.md", *sorted((folder / "benchmarks").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for name, picture in plots.items():
            if f"<!-- comm {name} -->" in text:
                (folder / "images" / f"comm-{name}.svg").write_text(picture, encoding="utf-8")
        images = "images/" if page.parent == folder else "../images/"
        replaced = re.sub(
            r"(<!-- comm (\S+) -->\n).*?(<!-- end -->)",
            lambda found: (f"{found[1]}{texts[found[2]].replace('(images/', f'({images}')}\n{found[3]}"
                           if found[2] in texts else found[0]),
            text, flags=re.DOTALL)
        page.write_text(replaced, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", type=pathlib.Path)
    parser.add_argument("--docs", type=pathlib.Path, help="the folder to write into")
    options = parser.parse_args()
    texts, plots = parts(load(options.figures))
    for name, text in texts.items():
        print(f"## {name}\n\n{text}\n")
    if options.docs:
        write_docs(options.docs, texts, plots)


if __name__ == "__main__":
    main()
