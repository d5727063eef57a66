#include "trireme/models/recommender.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/models/module_block.h"
#include "trireme/models/server_embedding.h"

namespace trireme::recommender_test {
namespace {

using models::Block;

// Row i of every table is i, i + 1, ....
struct CountedRows final : models::RowSource {
  explicit CountedRows(std::int64_t own) : width(own) {}
  models::PulledRows pull(std::uint32_t, const at::Tensor& ids) override {
    const at::Tensor flat = ids.flatten();
    const at::Tensor rows = flat.unsqueeze(1) + at::arange(width);
    return {flat, at::cat({rows, at::zeros({1, width}, at::kLong)}).to(at::kFloat),
            at::arange(flat.numel()).view(ids.sizes())};
  }
  void push(std::uint32_t, const at::Tensor&, const at::Tensor&) override {}
  const std::int64_t width;
};

// Every block's value; embeddings have the rows above.
std::map<std::string, at::Tensor> run(const models::Blocks& model, const at::Tensor& numbers,
                                      const at::Tensor& categories) {
  std::map<std::string, at::Tensor> values{{"numbers", numbers}, {"categories", categories}};
  for (const models::BlockSpec& spec : model.specs()) {
    const std::shared_ptr<Block> block = spec.make();
    if (const auto module = models::module_of(block))
      for (ServerEmbedding* embedding : models::embeddings_of(*module))
        embedding->connect(std::make_shared<CountedRows>(embedding->table().width), 0);
    std::vector<models::Value> inputs;
    for (const std::string& name : spec.reads) inputs.push_back({values.at(name)});
    values[spec.name] = block->forward(inputs).at(0);
  }
  return values;
}

const RecommenderConfig kConfig{
    .numbers = 3, .categories = 2, .width = 4, .bottom = {5}, .top = {6, 3}};
const at::Tensor kNumbers = at::arange(6).view({2, 3}).to(at::kFloat) / 3;
const at::Tensor kCategories = at::tensor({1, 7, 2, 9}, at::kLong).view({2, 2});

TEST(Recommender, DlrmMultipliesAllPairsOfRows) {
  const at::NoGradGuard no_grad;
  const auto values = run(models::make_dlrm(kConfig), kNumbers, kCategories);
  const at::Tensor bottom = values.at("bottom.1"), rows = values.at("embeddings");
  EXPECT_EQ(bottom.sizes(), (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(rows.sizes(), (std::vector<std::int64_t>{2, 2, 4}));
  const at::Tensor products = values.at("interaction");
  ASSERT_EQ(products.sizes(), (std::vector<std::int64_t>{2, 4 + 3}));
  for (std::int64_t sample = 0; sample < 2; ++sample) {
    EXPECT_TRUE(products[sample].narrow(0, 0, 4).equal(bottom[sample]));
    const at::Tensor r0 = rows[sample][0], r1 = rows[sample][1];
    const at::Tensor expected =
        at::stack({at::dot(r0, bottom[sample]), at::dot(r1, bottom[sample]), at::dot(r1, r0)});
    EXPECT_TRUE(at::allclose(products[sample].narrow(0, 4, 3), expected)) << products[sample];
  }
  EXPECT_EQ(values.at("logit").sizes(), (std::vector<std::int64_t>{2}));
}

TEST(Recommender, WideAndDeepAddsALinearModelOfTheCategories) {
  const at::NoGradGuard no_grad;
  const auto values = run(models::make_wide_and_deep(kConfig), kNumbers, kCategories);
  EXPECT_EQ(values.at("columns").sizes(), (std::vector<std::int64_t>{2, 3 + 2 * 4}));
  EXPECT_TRUE(values.at("wide").flatten().equal(at::tensor({8.0f, 11.0f})));
  EXPECT_TRUE(at::allclose(
      values.at("logit"),
      (values.at("deep.2") + values.at("wide") + values.at("wide_numbers.0")).flatten()));
}

TEST(Recommender, ImpossibleSizesAreRefused) {
  EXPECT_THROW(models::make_dlrm({.numbers = 0}), ConfigError);
  EXPECT_THROW(models::make_wide_and_deep({.top = {8, -1}}), ConfigError);
}

}  // namespace
}  // namespace trireme::recommender_test
