#include "trireme/layers/shared_sums.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "trireme/optim/optimizer.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme {
namespace {

// Parameters that end inside ranks' shares. The second is longer than some shares; rows of the
// third are longer than a chunk.
const std::vector<optim::ParameterInfo> kParameters = {
    {"a", {30, 40}}, {"b", {129, 300}}, {"c", {5, 6000}}, {"d", {10000}}, {"e", {70, 9, 3, 3}}};
constexpr std::int64_t kChunk = 4096;

struct Weights {
  std::vector<at::Tensor> weights, gradients;
  Weights() {
    for (const optim::ParameterInfo& parameter : kParameters) {
      weights.push_back(at::empty(parameter.shape, at::kFloat));
      tensor::fill_normal(weights.back(), 3, parameter.name, 0, 1);
      gradients.push_back(at::empty(parameter.shape, at::kFloat));
    }
  }
  void draw_gradients(int step) {
    for (std::size_t i = 0; i < gradients.size(); ++i)
      tensor::fill_normal(gradients[i], 4, kParameters[i].name + std::to_string(step), 0, 1);
  }
};

// Rank `rank`'s share of all chunks, in (parameter, chunk) order.
std::vector<optim::OwnedSlice> slices_of(Weights& all, int rank, int size) {
  std::int64_t chunks = 0;
  for (const at::Tensor& weight : all.weights) chunks += (weight.numel() + kChunk - 1) / kChunk;
  const std::int64_t first = chunks * rank / size, last = chunks * (rank + 1) / size;
  std::vector<optim::OwnedSlice> slices;
  std::int64_t before = 0;
  for (std::uint32_t i = 0; i < all.weights.size(); ++i) {
    const std::int64_t count = all.weights[i].numel(), own = (count + kChunk - 1) / kChunk;
    const std::int64_t begin = std::clamp<std::int64_t>(first - before, 0, own) * kChunk;
    const std::int64_t end =
        std::min(count, std::clamp<std::int64_t>(last - before, 0, own) * kChunk);
    before += own;
    if (begin >= end) continue;
    slices.push_back({.parameter = i,
                      .name = kParameters[i].name,
                      .begin = begin,
                      .end = end,
                      .weight = all.weights[i].data_ptr<float>() + begin,
                      .gradient = all.gradients[i].data_ptr<float>() + begin});
  }
  return slices;
}

void train(Weights& all, optim::Optimizer& optimizer) {
  for (int step = 0; step < 3; ++step) {
    all.draw_gradients(step);
    optimizer.apply(0.01, 0.25);
  }
}

void expect_sharded_is_unsharded() {
  for (const std::string& name : optim::optimizer_names()) {
    const OptimizerOptions options = optim::optimizer_of(name, {.momentum = 0.9});
    Weights wanted;
    const auto alone = optim::make_optimizer(options);
    alone->attach(slices_of(wanted, 0, 1), kParameters);
    train(wanted, *alone);
    for (const int size : {1, 2, 3, 5, 8}) {
      std::mutex mutex;
      testing::run_ranks(size, [&](testing::RankContext& rank) {
        Weights mine;
        const auto optimizer = optim::make_optimizer(options);
        const auto slices = slices_of(mine, rank.rank, rank.size);
        optimizer->attach(slices, kParameters, parallel::make_shared_sums(*rank.world));
        train(mine, *optimizer);
        const std::lock_guard lock(mutex);
        for (const optim::OwnedSlice& slice : slices) {
          const auto part = [&](const Weights& of) {
            return of.weights[slice.parameter].flatten().slice(0, slice.begin, slice.end);
          };
          EXPECT_TRUE(at::equal(part(mine), part(wanted)))
              << optimizer->name() << ": " << slice.name << " from " << slice.begin << ", rank "
              << rank.rank << " of " << size;
        }
      });
    }
  }
}

TEST(SharedSums, ShardedIsUnshardedBitForBit) { expect_sharded_is_unsharded(); }

TEST(SharedSums, ShardedIsUnshardedByLibTorchsOperations) {
  const tensor::LibTorchOnCpu by_tensors;
  expect_sharded_is_unsharded();
}

// A part of a parameter must not be updated without the other ranks' sums.
TEST(SharedSums, APartAloneIsNotUpdated) {
  for (const OptimizerOptions& options :
       {OptimizerOptions(Lamb{}), OptimizerOptions(Adafactor{})}) {
    Weights mine;
    mine.draw_gradients(0);
    const auto optimizer = optim::make_optimizer(options);
    optimizer->attach(slices_of(mine, 0, 8), kParameters);
    EXPECT_ANY_THROW(optimizer->apply(0.01, 1)) << optimizer->name();
  }
}

}  // namespace
}  // namespace trireme
