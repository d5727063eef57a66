#include "trireme/base/config/toml_nesting.h"

#include <gtest/gtest.h>

#include <string>

namespace trireme {
namespace {

std::string times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(TomlNesting, DeepBracketsTablesAndNamesAreFoundByTheirLine) {
  EXPECT_EQ(too_deep_line("a = 1\nx = " + times(50'000, "[") + times(50'000, "]")), 2);
  EXPECT_EQ(too_deep_line("\n\nx = " + times(50'000, "{a=")), 3);
  EXPECT_EQ(too_deep_line(times(50'000, "a.") + "a = 1"), 1);
  EXPECT_EQ(too_deep_line("[" + times(50'000, "a .") + "a]"), 1);
  EXPECT_EQ(too_deep_line(times(kMostNesting + 1, "a.") + "a = 1"), 1);
  EXPECT_EQ(too_deep_line("x = " + times(200, "[\n")), kMostNesting + 1);
}

TEST(TomlNesting, WhatLiesSideBySideIsNotDeep) {
  EXPECT_EQ(too_deep_line(times(1000, "[a.b]\nx = [1.5, 2.5, [3.5]]\ny = {z = 0.1}\n")), 0);
  EXPECT_EQ(too_deep_line("x = [" + times(1000, "0.5, ") + "]"), 0);
  EXPECT_EQ(too_deep_line(""), 0);
  EXPECT_EQ(too_deep_line(times(kMostNesting, "a.") + times(1000, "a") + " = 1"), 0);
}

TEST(TomlNesting, TextsAndCommentsAreNotCounted) {
  const std::string deep = times(500, "[{.");
  for (const std::string quote : {"\"", "'", "\"\"\"", "'''"})
    EXPECT_EQ(too_deep_line("x = " + quote + deep + quote + "\ny = 1\n"), 0) << quote;
  EXPECT_EQ(too_deep_line("x = 1  # " + deep + "\n"), 0);
  EXPECT_EQ(too_deep_line("x = \"\\\"" + deep + "\"\n"), 0);
  EXPECT_EQ(too_deep_line("x = \"open\n" + times(101, "[")), 2);  // the string ends with its line
  EXPECT_EQ(too_deep_line("x = \"\"\"\n\n\"\"\"\n" + times(101, "[")), 4);
  EXPECT_EQ(too_deep_line("x = \"\\"), 0);
  EXPECT_EQ(too_deep_line("x = [\"\"\"a\"\"\"\", " + times(101, "[")),
            1);  // the fourth quote is its own
  EXPECT_EQ(too_deep_line("x = ['''a'''', " + times(101, "[")), 1);
}

}  // namespace
}  // namespace trireme
