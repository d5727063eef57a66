#include "trireme/format/printable.h"

#include <gtest/gtest.h>

namespace trireme::format {
namespace {

TEST(Printable, KeepsTextAndHidesWhatATerminalWouldActOn) {
  EXPECT_EQ(printable("int main()\n\t{}"), "int main()\n\t{}");
  EXPECT_EQ(printable("gr\xC3\xBC\xC3\x9F \xF0\x9F\x9A\xA2"),
            "gr\xC3\xBC\xC3\x9F \xF0\x9F\x9A\xA2");
  EXPECT_EQ(printable("\x1B[2J\r\x7F"), "?[2J??");
  EXPECT_EQ(printable("\xC3"), "?");            // cut off
  EXPECT_EQ(printable("\xC0\x80"), "??");       // overlong
  EXPECT_EQ(printable("\xED\xA0\x80"), "???");  // surrogate
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "????");
  EXPECT_EQ(printable("\xC2\x9B"), "?");  // C1 control
}

}  // namespace
}  // namespace trireme::format
