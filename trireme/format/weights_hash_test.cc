#include "trireme/format/weights_hash.h"

#include <gtest/gtest.h>

#include "trireme/base/check.h"
#include "trireme/format/sha256.h"

namespace trireme::format {
namespace {

const float kValues[6] = {1, 2, 3, 4, 5, 6};

RawTensor raw(std::string name, std::vector<std::int64_t> shape, std::size_t first = 0,
              std::size_t count = 6, DType dtype = DType::F32) {
  return {std::move(name), dtype, std::move(shape),
          std::as_bytes(std::span<const float>(kValues).subspan(first, count))};
}

TEST(Sha256, MatchesThePublishedVectors) {
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 hash;
  hash.update(std::string_view("a"));
  hash.update(std::string_view("bc"));
  EXPECT_EQ(hash.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(WeightsHash, StaysWhatItWas) {  // written into runs and docs: it may not drift
  // python3: sha256 of the stream in the header, with struct.pack('<Q', …) and '<f'
  EXPECT_EQ(weights_hash({raw("b", {2, 3}), raw("a", {2}, 0, 2)}),
            "30a899e258a91b6543c4bc6147feb191d285bc8ef5e258a1d893fbaee10e26d9");
}

TEST(WeightsHash, DoesNotDependOnTheOrderGiven) {
  EXPECT_EQ(weights_hash({raw("b", {6}), raw("a", {2}, 0, 2)}),
            weights_hash({raw("a", {2}, 0, 2), raw("b", {6})}));
}

TEST(WeightsHash, SeesNameShapeTypeAndBytes) {
  const std::string base = weights_hash({raw("w", {6})});
  EXPECT_NE(base, weights_hash({raw("v", {6})}));
  EXPECT_NE(base, weights_hash({raw("w", {2, 3})}));
  EXPECT_NE(base, weights_hash({raw("w", {6}, 0, 6, DType::I32)}));
  EXPECT_NE(weights_hash({raw("w", {3}, 0, 3)}), weights_hash({raw("w", {3}, 3, 3)}));
}

TEST(WeightsHash, RefusesTwoOfOneNameAndWrongSizes) {
  EXPECT_THROW(weights_hash({raw("w", {6}), raw("w", {6})}), CheckFailure);
  EXPECT_THROW(weights_hash({raw("w", {5})}), CheckFailure);
}

}  // namespace
}  // namespace trireme::format
