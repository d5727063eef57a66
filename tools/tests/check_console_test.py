"""tools/check_console.py on small documents."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[1] / "check_console.py"


class CheckConsole(unittest.TestCase):
    def run_document(self, text, *options):
        with tempfile.NamedTemporaryFile("w", suffix=".md") as document:
            document.write(text)
            document.flush()
            return subprocess.run([sys.executable, str(TOOL), document.name, *options], capture_output=True,
                                  text=True, check=False)

    def assert_fails(self, text, word):
        done = self.run_document(text)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(word, done.stderr)

    def test_what_is_printed_in_any_order_passes(self):
        done = self.run_document("```console\n$ echo b; echo a 12 s\na … s\nb\n```\n")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_line_that_is_not_printed_fails(self):
        self.assert_fails("```console\n$ echo a\nb\n```\n", "not printed")

    def test_a_line_with_gaps_leaves_a_whole_line_its_own(self):
        done = self.run_document("```console\n$ echo a 1; echo a 2\na …\na 1\n```\n")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_one_line_does_not_count_twice(self):
        self.assert_fails("```console\n$ echo a\na\na\n```\n", "not printed")

    def test_the_exit_status_counts(self):
        self.assert_fails("```console\n$ false\n```\n", "exit 1, expected 0")
        self.assertEqual(self.run_document("<!-- exit 3 -->\n```console\n$ exit 3\n```\n").returncode, 0)

    def test_a_document_without_commands_fails(self):
        self.assert_fails("```sh\nfalse\n```\n", "no console block")

    def test_a_block_can_be_left_out(self):
        done = self.run_document("<!-- not run -->\n```console\n$ false\n```\n```console\n$ true\n```\n")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_block_with_a_program_runs_where_it_is(self):
        text = "<!-- with ssh -->\n```console\n$ false\n```\n```console\n$ true\n```\n"
        self.assertEqual(self.run_document(text).returncode, 0)
        self.assertEqual(self.run_document(text, "--with", "mpirun").returncode, 0)
        self.assertEqual(self.run_document(text, "--with", "ssh").returncode, 1)


if __name__ == "__main__":
    unittest.main()
