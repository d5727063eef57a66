#include "trireme/input/tensor_rows.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using input::Fields;
using input::pack_rows;
using input::TensorRows;
using ::testing::HasSubstr;

Fields sample_fields() {
  return {{"images", at::arange(24, at::kFloat).view({4, 2, 3}).transpose(1, 2)},
          {"on", at::arange(4).gt(1)},
          {"targets", at::arange(4)}};
}

const at::Tensor& field(const Fields& fields, const std::string& name) {
  for (const auto& [own, tensor] : fields)
    if (own == name) return tensor;
  throw std::out_of_range(name);
}

TEST(TensorRows, GiveTheRowsThatAreAskedFor) {
  const Fields whole = sample_fields();
  const std::string bytes = pack_rows(whole, "samples");
  EXPECT_EQ(TensorRows::count(bytes), 4);
  const TensorRows rows(bytes, nullptr, {.items_per_sample = 3});
  EXPECT_EQ(rows.size(), 4);
  const std::vector<std::int64_t> numbers = {3, 0, 3};
  EXPECT_EQ(rows.count_items(numbers), 9);
  const Fields some = rows.read(numbers);
  ASSERT_EQ(some.size(), 3u);
  for (const auto& [name, tensor] : whole) {
    const at::Tensor wanted = at::index_select(tensor, 0, at::tensor(numbers));
    EXPECT_TRUE(field(some, name).equal(wanted)) << name;
    EXPECT_EQ(field(some, name).scalar_type(), tensor.scalar_type()) << name;
  }
}

// The sanitizers refuse a memcpy to or from null, also of no bytes.
TEST(TensorRows, MayHaveNoColumns) {
  const std::string bytes = pack_rows({{"none", at::zeros({4, 0})}}, "samples");
  const TensorRows rows(bytes, nullptr, {});
  const Fields some = rows.read(std::vector<std::int64_t>{3, 0});
  EXPECT_EQ(some[0].second.sizes(), (std::vector<std::int64_t>{2, 0}));
}

TEST(TensorRows, EndlessAreAllRowsOnceAnEpochInANewOrder) {
  const std::string bytes = pack_rows({{"x", at::arange(20)}}, "samples");
  const TensorRows rows(bytes, nullptr, {.endless = true, .seed = 3});
  const TensorRows other(bytes, nullptr, {.endless = true, .seed = 4});
  EXPECT_EQ(rows.size(), 0);
  std::vector<at::Tensor> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < 20; ++i) numbers.push_back(20 * epoch + i);
    epochs.push_back(rows.read(numbers)[0].second);
    EXPECT_TRUE(std::get<0>(epochs.back().sort()).equal(at::arange(20)));
    EXPECT_FALSE(other.read(numbers)[0].second.equal(epochs.back()));
  }
  EXPECT_FALSE(epochs[0].equal(epochs[1]));
  EXPECT_FALSE(epochs[1].equal(epochs[2]));
}

TEST(TensorRows, EqualTensorsGiveEqualBytes) {
  EXPECT_EQ(pack_rows(sample_fields(), "a"), pack_rows(sample_fields(), "b"));
}

TEST(TensorRows, RefusesWhatAreNoSamples) {
  const auto refusal = [](const Fields& fields) -> std::string {
    try {
      pack_rows(fields, "the samples");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal({}), HasSubstr("the samples have no field"));
  EXPECT_THAT(refusal({{"x", at::zeros({})}}), HasSubstr("\"x\" is not a tensor with rows"));
  EXPECT_THAT(refusal({{"x", at::Tensor()}}), HasSubstr("\"x\" is not a tensor with rows"));
  EXPECT_THAT(refusal({{"x", at::zeros({0, 3})}}), HasSubstr("\"x\" has no rows"));
  EXPECT_THAT(refusal({{"x", at::zeros({2})}, {"x", at::zeros({2})}}), HasSubstr("occurs twice"));
  EXPECT_THAT(refusal({{"x", at::zeros({2})}, {"y", at::zeros({3})}}),
              HasSubstr("\"y\" has 3 rows, and \"x\" has 2"));
}

}  // namespace
}  // namespace trireme
