#include "trireme/format/tokenizer.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::format {
namespace {

TEST(ByteTokenizer, GivesEveryByteBack) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  const auto tokenizer = make_tokenizer("bytes");
  const auto tokens = tokenizer->encode(text);
  ASSERT_EQ(tokens.size(), 256u);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(tokens[byte], byte);
  EXPECT_EQ(tokenizer->decode(tokens), text);
  EXPECT_EQ(tokenizer->vocabulary_size(), 256);
}

TEST(ByteTokenizer, NamesATokenThatIsNoByte) {
  const std::int32_t tokens[] = {65, 256};
  try {
    make_tokenizer("bytes")->decode(tokens);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(error.message().find("256"), std::string::npos);
  }
}

TEST(Tokenizer, RefusesAnUnknownName) { EXPECT_THROW(make_tokenizer("bpe"), ConfigError); }

TEST(Printable, KeepsTextAndHidesWhatATerminalWouldObey) {
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
