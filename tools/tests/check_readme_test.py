"""The parts of tools/check_readme.py."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import check_readme  # noqa: E402


class CheckReadme(unittest.TestCase):
    def test_commands_are_taken_in_order_without_output_and_comments(self):
        text = "```sh\nmake train   # now\n```\n```console\n$ a \\\n  b\nprinted\n```\n```cpp\nint x;\n```\n"
        self.assertEqual([" ".join(line.split()) for line in check_readme.commands(text)], ["make train", "a b"])

    def test_of_another_page_only_the_marked_block_is_taken(self):
        block = "```sh\na\n```\n"
        self.assertEqual(check_readme.marked(f"{block}<!-- run by tools/check_readme.py -->\n{block}text\n{block}"), block)
        guide = check_readme.marked((check_readme.ROOT / "docs" / "guide.md").read_text())
        self.assertIn("build/bin/trireme eval runs/gpt-nano", check_readme.commands(guide))

    def test_make_train_is_short_and_other_targets_are_only_looked_up(self):
        self.assertIn("train.steps=20", check_readme.translate("make train", "/x"))
        self.assertIn("--dry-run", check_readme.translate("make test", "/x"))
        self.assertIsNone(check_readme.translate("git clone somewhere", "/x"))
        self.assertEqual(check_readme.translate("build/bin/trireme eval runs/gpt-nano", "/x"),
                         "build/bin/trireme eval /x")

    def test_the_diff_is_the_examples(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            example = root / "examples" / "02_data_parallel"
            example.mkdir(parents=True)
            (example / "before.cc").write_text("a;\n  b();\n")
            (example / "main.cc").write_text("a;\n  c();\n")
            self.assertEqual(check_readme.diff_faults("```diff\n-  b();\n+  c();\n```\n", root), [])
            self.assertEqual(len(check_readme.diff_faults("```diff\n-  b();\n```\n", root)), 1)
            self.assertEqual(len(check_readme.diff_faults("```diff\n-  b();\n+  c();\n+ d;\n```\n", root)), 1)
            self.assertEqual(check_readme.diff_faults("nothing", root), ["no diff block"])

    def test_a_dead_link_is_named(self):
        text = "[a](docs/no.md) [b](docs/no.md#part) [c](https://x.y) [d](#here)"
        self.assertEqual(len(check_readme.link_faults(text, pathlib.Path("/"))), 2)


if __name__ == "__main__":
    unittest.main()
