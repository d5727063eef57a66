"""What tools/slowest_tests.py reads out of ctest's lines."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import slowest_tests  # noqa: E402

LOG = """
 1/4 Test  #3: base/words ..........................   Passed    0.02 sec
 2/4 Test #10: tests/cli/fit .......................***Failed   93.50 sec
      Start  11: not/a/result
 3/4 Test #11: comm/board ..........................   Passed    1.50 sec
 1/1 Test  #1: base/words ..........................   Passed    2.00 sec
"""


class Slowest(unittest.TestCase):
    def test_the_longest_come_first_and_failed_ones_count(self):
        self.assertEqual(slowest_tests.slowest(LOG, 2), [(93.5, "tests/cli/fit"), (2.0, "base/words")])

    def test_a_test_of_two_builds_is_named_once(self):
        self.assertEqual(len(slowest_tests.slowest(LOG, 9)), 3)


if __name__ == "__main__":
    unittest.main()
