"""The parts of tools/check_one_place.py."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import check_one_place  # noqa: E402

ENTRY = 'Entry {0}_entry() {{\n  return {{.name = "{1}",\n          .make = {0}}};\n}}\n'


class CheckOnePlace(unittest.TestCase):
    def check(self, files, lines=("ring", "zb_h1"), allowed=None):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            home = root / "trireme" / "all"
            home.mkdir(parents=True)
            (home / "ring.cc").write_text(ENTRY.format("ring", "ring"))
            (home / "zb_h1.cc").write_text(ENTRY.format("zb_h1", "zb-h1"))
            (home / "list.inc").write_text("".join(f"TRIREME_ONE({line})\n" for line in lines))
            for name, text in files.items():
                (root / "trireme" / name).write_text(text)
            return check_one_place.check(root, ("trireme/all",), allowed or {})

    def test_names_in_their_own_files_are_no_fault(self):
        self.assertEqual(self.check({"a.cc": '// "ring"\n#include "ring"\nf("springs, a ring");\n'}), [])

    def test_a_second_place_is_a_fault(self):
        faults = self.check({"a.cc": '\nif (name == "ring") f();\n', "help.cc": '"1f1b | zb-h1"\n'})
        self.assertEqual([fault.split(":")[:2] for fault in faults],
                         [["trireme/a.cc", "2 names ring"], ["trireme/help.cc", "1 names zb-h1"]])

    def test_tests_may_name_one(self):
        self.assertEqual(self.check({"a_test.cc": 'f("ring");\n'}), [])

    def test_an_exception_is_named_and_used(self):
        allowed = {("a.cc", "ring"): "default"}
        self.assertEqual(self.check({"a.cc": 'f("ring");\n'}, allowed=allowed), [])
        self.assertIn("does not name ring any more", self.check({}, allowed=allowed)[0])

    def test_the_list_has_a_line_for_each_entry(self):
        self.assertIn("lacks zb_h1", self.check({}, lines=("ring",))[0])
        self.assertIn("no file defines tree_entry()", self.check({}, lines=("ring", "zb_h1", "tree"))[0])
        self.assertIn("has ring twice", self.check({}, lines=("ring", "zb_h1", "ring"))[0])

    def test_a_levels_line_is_that_of_its_function(self):
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            (home / "zero9.cc").write_text('Level zero9_level() {\n  return {.name = "zero9", .plan = &plan};\n}\n')
            (home / "list.inc").write_text("TRIREME_LEVEL(zero9)\n")
            self.assertEqual(check_one_place.entries(home), {"zero9": (home / "zero9.cc", "zero9")})
            self.assertEqual(check_one_place.check_list(home), [])

    def test_an_optimizers_file_is_included_by_the_list(self):
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            for name in ("lion", "sgd"):
                (home / f"{name}.inc").write_text(
                    f'#ifdef A\nTRIREME_OPTIMIZER(One)\n#else\nstatic auto kName = "{name}";\n#endif\n')
            (home / "list.inc").write_text('#include "trireme/all/sgd.inc"\n#include "trireme/all/sgd.inc"\n')
            self.assertEqual(check_one_place.entries(home)["lion"], (home / "lion.inc", "lion"))
            faults = check_one_place.check_list(home)
            self.assertEqual([fault.split("/")[1] for fault in faults], ["list.inc lacks lion", "list.inc has sgd twice"])


if __name__ == "__main__":
    unittest.main()
