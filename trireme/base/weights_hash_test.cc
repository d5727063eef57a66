#include "trireme/base/weights_hash.h"

#include <gtest/gtest.h>

#include <array>

namespace trireme {
namespace {

const std::array<float, 4> kOnes = {1, 1, 1, 1};
const std::array<float, 4> kOther = {1, 1, 1, -1};

HashedTensor tensor(std::string name, const std::array<float, 4>& values,
                    std::vector<std::int64_t> shape, DType dtype = DType::F32) {
  return {std::move(name), dtype, std::move(shape), std::as_bytes(std::span(values))};
}

// python3: h=hashlib.sha256();
// h.update(b"w\0F32\0"+struct.pack("<3q",1,4,16)+struct.pack("<4f",1,1,1,1))
TEST(WeightsHash, FollowsItsDefinition) {
  EXPECT_EQ(weights_hash({tensor("w", kOnes, {4})}),
            "419356077396f7678e99f4cffb6f99b541b37ab71277813c56b413b6b91fbc40");
}

TEST(WeightsHash, DependsOnNameTypeShapeAndBytesButNotOnTheOrderGiven) {
  const std::string hash = weights_hash({tensor("a", kOnes, {4}), tensor("b", kOther, {4})});
  EXPECT_EQ(hash, weights_hash({tensor("b", kOther, {4}), tensor("a", kOnes, {4})}));
  EXPECT_NE(hash, weights_hash({tensor("a", kOnes, {4}), tensor("c", kOther, {4})}));
  EXPECT_NE(hash, weights_hash({tensor("a", kOnes, {4}), tensor("b", kOther, {2, 2})}));
  EXPECT_NE(hash, weights_hash({tensor("a", kOnes, {4}), tensor("b", kOnes, {4})}));
  EXPECT_NE(hash, weights_hash({tensor("a", kOnes, {4}), tensor("b", kOther, {4}, DType::I32)}));
}

TEST(WeightsHash, OneTensorsHashSeesASingleBit) {
  EXPECT_EQ(tensor_hash(tensor("a", kOnes, {4})), tensor_hash(tensor("a", kOnes, {4})));
  EXPECT_NE(tensor_hash(tensor("a", kOnes, {4})), tensor_hash(tensor("a", kOther, {4})));
}

}  // namespace
}  // namespace trireme
