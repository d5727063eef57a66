#!/usr/bin/env python3
"""bench/report.py: the table against target, the parts of a page, and plots that are XML."""
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import report  # noqa: E402

KIB64, MIB = 64 << 10, 1 << 20
FIGURES = {
    "arena": {KIB64: 2e-6, MIB: 20e-6}, "heap": {KIB64: 10e-6, MIB: 100e-6},
    "yard": {KIB64: 1e-6, MIB: 19e-6}, "stream": {KIB64: 1e-6, MIB: 10e-6},
    "openmpi": {KIB64: 20e-6, MIB: 60e-6}}


def everything(seconds):
    return {"machine": "a test, 2 cores", "date": "2026-01-01", "how": "the median of 3 rounds",
            "runs": [{"collective": "all_reduce", "ranks": 2, "transport": "shm", "seconds": seconds}]}


def target_row(text, name):
    return next(line for line in text.splitlines() if line.startswith(f"| {name} |"))


class Report(unittest.TestCase):
    def test_targets_are_kept_honest(self):
        texts, _ = report.parts(everything(FIGURES))
        row = target_row(texts["targets"], "arena: 4x Open MPI")
        self.assertIn("64 KiB 10.00x, 1 MiB 3.00x", row)
        self.assertIn("missed at 1 MiB", row)
        faster = report.parts(everything(dict(FIGURES, openmpi={KIB64: 20e-6, MIB: 160e-6})))[0]
        self.assertIn("| reached |", target_row(faster["targets"], "arena: 4x Open MPI"))
        self.assertIn("missed at 1 MiB", target_row(texts["targets"], "heap: 1.5x Open MPI"))
        self.assertIn("missed at 64 KiB",
                      target_row(texts["targets"], "arena: 90 % of the yardstick"))
        self.assertIn("not measured", target_row(texts["targets"], "TCP on loopback: 2x Gloo"))

    def test_an_arena_that_costs_more_than_its_neighbours_is_named(self):
        fast, slow = {KIB64: 1e-6, MIB: 10e-6}, {KIB64: 1.1e-6, MIB: 80e-6}
        found = dict(everything(FIGURES), arenas={127 * MIB: fast, 128 * MIB: slow, 129 * MIB: fast})
        texts, _ = report.parts(found)
        row = target_row(texts["targets"], "no arena's size costs over 1.3x its neighbours")
        self.assertIn("64 KiB 0.91x, 1 MiB 0.12x | missed at 1 MiB", row)
        self.assertIn("| 2 x 128 MiB | 1.10 µs | 80.00 µs | - |", texts["arenas"])

    def test_tables_hold_times_and_ratios(self):
        texts, _ = report.parts(everything(FIGURES))
        table = texts["all_reduce-2"]
        self.assertIn("| 64 KiB | 2.00 µs | 10.00 µs | 32.77 | 1.00 µs | 0.50x |", table)
        self.assertIn("| 1 MiB | 60.00 µs | 3.00x | 0.60x |", table)

    def test_a_size_that_a_program_lacks_is_a_dash(self):
        texts, _ = report.parts(everything(dict(FIGURES, openmpi={KIB64: 20e-6})))
        self.assertIn("| 1 MiB | - | - | - |", texts["all_reduce-2"])

    def test_a_size_that_ours_lacks_is_a_row_and_a_missed_target(self):
        texts, _ = report.parts(everything(dict(FIGURES, arena={KIB64: 2e-6})))
        self.assertIn("| 1 MiB | - | 100.00 µs | - | 19.00 µs | - |", texts["all_reduce-2"])
        self.assertIn("64 KiB 10.00x, 1 MiB - | missed at 1 MiB", target_row(texts["targets"], "arena: 4x Open MPI"))

    def test_bytes_are_told_in_whole_units(self):
        self.assertEqual([report.text_of(size) for size in (8, KIB64, 100000, 3 << 19, 127 * MIB)],
                         ["8 B", "64 KiB", "100000 B", "1536 KiB", "127 MiB"])

    def test_nothing_of_ours_is_no_table(self):
        self.assertEqual(report.own_table({}), "")
        self.assertEqual(report.peer_table({}), "")

    def test_plots_are_xml_with_a_line_for_each_program(self):
        _, plots = report.parts(everything(FIGURES))
        root = xml.etree.ElementTree.fromstring(plots["all_reduce-2"])
        lines = root.findall(".//{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(lines), 2 * 4)  # two panels; W is not drawn

    def test_only_marked_parts_of_a_page_are_replaced(self):
        texts, plots = report.parts(everything(FIGURES))
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "images").mkdir()
            page = folder / "benchmarks.md"
            page.write_text("a\n<!-- comm machine -->\nold\n<!-- end -->\nb\n<!-- comm other -->\n"
                            "kept\n<!-- end -->\n<!-- comm all_reduce-2 -->\n<!-- end -->\nc\n")
            report.write_docs(folder, texts, plots)
            text = page.read_text()
            self.assertTrue((folder / "images" / "comm-all_reduce-2.svg").exists())
            report.write_docs(folder, texts, plots)
            self.assertEqual(page.read_text(), text)
        self.assertIn("a\n<!-- comm machine -->\nMachine: a test, 2 cores; 2026-01-01", text)
        self.assertIn("kept\n<!-- end -->", text)
        self.assertNotIn("old", text)
        self.assertTrue(text.endswith("<!-- end -->\nc\n"))


if __name__ == "__main__":
    unittest.main()
