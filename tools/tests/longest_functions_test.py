"""What tools/longest_functions.py takes for a function."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import longest_functions  # noqa: E402

TEXT = """namespace trireme {
struct Point {
  int x() const {
    return 1;
  }
};
template <class T>
T twice(T value) {
  if (value) {
    return 2 * value;
  }
  return value;
}
}  // namespace trireme

extern "C" int entry(int size) {
  auto call = [](int one) {
    return one;
  };
  return call(size);
}
"""


class LongestFunctions(unittest.TestCase):
    def test_members_templates_and_c_functions_count_with_what_is_in_them(self):
        self.assertEqual(longest_functions.functions(TEXT), [
            (3, 3, "int x() const {"), (7, 7, "template <class T> T twice(T value) {"),
            (6, 16, 'extern "C" int entry(int size) {')])


if __name__ == "__main__":
    unittest.main()
