"""Tests of tools/check_words.py."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import check_words  # noqa: E402


class Words(unittest.TestCase):
    def faults(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "trireme", name)
            path.parent.mkdir()
            path.write_text(text)
            return [fault.split(": ", 1)[0] for fault in check_words.faults(pathlib.Path(folder))]

    def test_a_comment_may_not_begin_with_a_clause(self):
        text = "// Of each rank the first.\nint a;\n\n/// A file.\n/// Of it.\nint b;  // What it is.\n//\n// Where.\n"
        self.assertEqual(self.faults("a.h", text), ["trireme/a.h:1", "trireme/a.h:6", "trireme/a.h:8"])

    def test_a_comment_goes_on_in_the_next_line(self):
        self.assertEqual(self.faults("a.cc", "// Reads the file.\n// That may fail.\n\nint often;  // Often.\n"), [])

    def test_pictorial_words_in_names_comments_and_pages(self):
        self.assertEqual(self.faults("a.cc", "void obey_all();\nint seats;  // fine\nint season, seated_at;\n"),
                         ["trireme/a.cc:1", "trireme/a.cc:2", "trireme/a.cc:3"])
        self.assertEqual(self.faults("b.cc", "class SeatMap;\nTEST(A, RanksObeyAll) {}\nint Season;\n"),
                         ["trireme/b.cc:1", "trireme/b.cc:2"])
        self.assertEqual(self.faults("page.md", "A rank's bad luck.\n\nWhat it is.\n"), ["trireme/page.md:1"])


if __name__ == "__main__":
    unittest.main()
