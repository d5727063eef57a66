#include "trireme/format/xxh3.h"

#include <gtest/gtest.h>

namespace trireme::format {
namespace {

std::span<const std::byte> in_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// python3 -c 'import xxhash; print(xxhash.xxh3_128_hexdigest(b"abc"))'
TEST(Xxh3, DigestsOfTheReferenceImplementation) {
  EXPECT_EQ(xxh3_hex({}), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(xxh3_hex(in_bytes("abc")), "06b05ab6733a618578af5f94892f3950");
}

TEST(Xxh3, PiecesHashAsTheWhole) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>('a' + i * 7 % 26);
  const std::string_view view = text;
  for (const std::size_t piece : {1, 63, 64, 65, 256, 1000, 2999}) {
    Xxh3 hash;
    for (std::size_t at = 0; at < view.size(); at += piece)
      hash.update(in_bytes(view.substr(at, piece)));
    EXPECT_EQ(hash.hex(), xxh3_hex(in_bytes(view))) << piece;
    hash.reset();
    hash.update(in_bytes("abc"));
    EXPECT_EQ(hash.hex(), xxh3_hex(in_bytes("abc")));
  }
}

}  // namespace
}  // namespace trireme::format
