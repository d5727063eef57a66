"""The parts of tools/check_snippets.py."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import check_snippets  # noqa: E402

SOURCE = "int f() {\n  // [one]\n  a();\n    b();\n  // [/one]\n}\n"


class CheckSnippets(unittest.TestCase):
    def check(self, block, fix=False, name="one"):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "x").mkdir()
            (root / "x" / "main.cc").write_text(SOURCE)
            document = root / "d.md"
            document.write_text(f"<!-- x/main.cc: {name} -->\n```cpp\n{block}```\n")
            return check_snippets.check(root, document, fix), document.read_text()

    def test_the_piece_without_its_indentation_is_what_is_wanted(self):
        self.assertEqual(self.check("a();\n  b();\n")[0], [])

    def test_a_difference_is_a_fault_and_can_be_mended(self):
        self.assertEqual(len(self.check("a();\n")[0]), 1)
        faults, text = self.check("", fix=True)
        self.assertEqual(faults, [])
        self.assertIn("```cpp\na();\n  b();\n```", text)

    def test_a_piece_that_is_not_there_is_named(self):
        self.assertIn("no piece two", self.check("", name="two")[0][0])


    def test_a_picture_is_the_whole_file(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "p.txt").write_text("0  1\n")
            document = root / "d.md"
            document.write_text("<!-- p.txt -->\n```text\nold\n```\n")
            self.assertIn("a picture is not what p.txt says",
                          check_snippets.check(root, document, False)[0])
            self.assertEqual(check_snippets.check(root, document, True), [])
            self.assertEqual(document.read_text(), "<!-- p.txt -->\n```text\n0  1\n```\n")

    def test_a_table_is_the_whole_file(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "t.md").write_text("| a |\n")
            document = root / "d.md"
            document.write_text("<!-- t.md -->\n<!-- end -->\nmore\n")
            self.assertEqual(len(check_snippets.check(root, document, False)), 1)
            self.assertEqual(check_snippets.check(root, document, True), [])
            self.assertEqual(document.read_text(), "<!-- t.md -->\n| a |\n<!-- end -->\nmore\n")


if __name__ == "__main__":
    unittest.main()
