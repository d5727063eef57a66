#include "trireme/cli/opening.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

TEST(Opening, IsHowMostLinesBegin) {
  EXPECT_EQ(usual_opening("line 1 of it\nline 7 of it\nline 12 of it\nline 13 of it\n"), "line");
  EXPECT_EQ(usual_opening("ROMEO:\nO, speak again\n\nJULIET:\nO Romeo\n\nROMEO:\nShall I\n"),
            "ROMEO:");
  EXPECT_EQ(usual_opening("template <class T>\n  T x;\ntemplate <class U>\n#include <map>\n"),
            "template <class");
  EXPECT_EQ(usual_opening("the one line of a text"), "the one line");
  EXPECT_EQ(usual_opening("Привет, мир\r\nПривет, друг\r\n"), "Привет,");
}

TEST(Opening, CanBeTypedInDoubleQuotes) {
  EXPECT_EQ(usual_opening("$PATH is\n$PATH is\nit is\n"), "it is");
  EXPECT_EQ(usual_opening("say \"yes\"\nsay \"no\"\n"), "say");
  EXPECT_EQ(usual_opening("{\n}\n{\n}\nint main\n"), "int main");
  EXPECT_EQ(usual_opening("\xff\xfe word\n"), "");
}

TEST(Opening, NoneWhereThereIsNoLine) {
  EXPECT_EQ(usual_opening(""), "");
  EXPECT_EQ(usual_opening("\n\n  indented\n"), "");
  EXPECT_EQ(usual_opening(std::string(2 << 20, 'x')), "");
  EXPECT_EQ(usual_opening(std::string(100, 'x')), "");
}

}  // namespace
}  // namespace trireme::cli
