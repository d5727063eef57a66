"""Tests of tools/check_citations.py."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import check_citations  # noqa: E402


class Citations(unittest.TestCase):
    def test_a_tree_that_git_does_not_know_is_checked_as_well(self):
        for repository in (False, True):
            self.check_a_citation(repository)

    def check_a_citation(self, repository):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            if repository:   # of something else, in whose folder the tree was unpacked
                subprocess.run(["git", "init", "--quiet", folder], check=True)
            (root / "trireme").mkdir()
            (root / "trireme" / "there.h").write_text("// See base/gone.h and trireme/there.h.\n")
            self.assertEqual(list(check_citations.faults(root)),
                             ["trireme/there.h:1: cites base/gone.h, which is not in the tree"])

    def test_a_page_names_what_is_there(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "trireme" / "sync" / "levels").mkdir(parents=True)
            (root / "trireme" / "sync" / "levels" / "plain_sync.cc").write_text("")
            (root / "page.md").write_text("`sync/levels/plain_sync`, `sync/levels/`, `sync/plain_sync`, `other/name`\n")
            self.assertEqual(list(check_citations.faults(root)),
                             ["page.md:1: cites sync/plain_sync*, which is not in the tree"])


if __name__ == "__main__":
    unittest.main()
