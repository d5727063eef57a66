// Shared by tests of DataParallel: a small module, its samples, and a plan that deals them out.
#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <memory>

#include "trireme/job/input_plan.h"
#include "trireme/kernel/assignment.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/shares.h"
#include "trireme/tensor/random.h"

namespace trireme::data_parallel_test {

struct Net : torch::nn::Module {
  explicit Net(bool with_norm = false, double with_dropout = 0, std::int64_t width = 16)
      : dropout(with_dropout) {
    first = register_module("first", torch::nn::Linear(6, width));
    second = register_module("second", torch::nn::Linear(width, 3));
    unused = register_module("unused", torch::nn::Linear(2, 2));
    if (with_norm) norm = register_module("norm", torch::nn::BatchNorm1d(width));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor hidden = first(x);
    if (norm) hidden = norm(hidden);
    hidden = at::gelu(hidden);
    if (dropout > 0) hidden = at::dropout(hidden, dropout, is_training());
    return second(hidden);
  }
  double dropout;
  torch::nn::Linear first{nullptr}, second{nullptr}, unused{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

// Deals out `samples` samples in order, in global batches of `batch` and micro-batches of `micro`,
// epoch by epoch.
class Plan final : public InputPlan {
 public:
  Plan(std::int64_t samples, std::int64_t batch, std::int64_t micro, int rank,
       const kernel::Assignment& assignment) {
    for (std::int64_t begin = 0; begin < samples; begin += batch, ++number_) {
      const std::int64_t global = std::min(batch, samples - begin);
      const auto total = static_cast<std::uint32_t>((global + micro - 1) / micro);
      const auto share = leaves_of(assignment, total, rank);
      const bool last = begin + batch >= samples;
      for (const std::uint32_t i : share) {
        const std::int64_t first = begin + i * micro;
        add({.index = i,
             .total = total,
             .samples = std::min(micro, begin + global - first),
             .last_of_batch = i == share.back()},
            first, global, last);
      }
      if (share.empty())
        add({.total = total, .has_data = false, .last_of_batch = true}, -1, global, last);
    }
  }
  std::optional<MicroStep> peek() override {
    if (position_ == steps_.size()) return std::nullopt;
    MicroStep step = steps_[position_];
    step.batch_number += epoch_ * number_;
    return step;
  }
  void consume() override { ++position_; }
  void next_epoch() {
    EXPECT_EQ(position_, steps_.size());
    position_ = 0;
    ++epoch_;
  }
  // (first sample, count) of each of this rank's micro-batches in one epoch.
  const std::vector<std::pair<std::int64_t, std::int64_t>>& loader() const { return loader_; }

 private:
  void add(MicroStep step, std::int64_t first, std::int64_t global, bool last) {
    step.global_samples = global;
    step.batch_number = number_;
    step.last_of_epoch = last;
    steps_.push_back(step);
    if (step.has_data) loader_.emplace_back(first, step.samples);
  }
  std::vector<MicroStep> steps_;
  std::vector<std::pair<std::int64_t, std::int64_t>> loader_;
  std::int64_t number_ = 0, epoch_ = 0;
  std::size_t position_ = 0;
};

inline std::pair<at::Tensor, at::Tensor> samples(std::int64_t first, std::int64_t count) {
  std::vector<at::Tensor> rows;
  for (std::int64_t i = first; i < first + count; ++i) {
    at::Tensor row = at::empty({6}, at::kFloat);
    tensor::fill_normal(row, 11, std::to_string(i), 0, 1);
    rows.push_back(row);
  }
  const at::Tensor x = at::stack(rows);
  return {x, x.narrow(1, 0, 3).abs()};
}

inline at::Tensor mean_loss(Net& net, std::int64_t first, std::int64_t count) {
  const auto [x, y] = samples(first, count);
  return (net.forward(x) - y).pow(2).mean(1).mean();
}

struct Setting {
  std::int64_t samples = 10, batch = 4, micro = 1;
  bool norm = false;
  double dropout = 0;
  bool by_token = false;
  bool scheduled = false;  // a learning rate for each batch
  std::uint64_t seed = 3;
  std::int64_t width = 16;
  std::string optimizer = "adamw";
  DataParallelOptions options = {.bucket_bytes = 256};
};

inline std::unique_ptr<torch::optim::Optimizer> optimizer_of(const std::string& name, Net& net) {
  using namespace torch::optim;
  const auto parameters = net.parameters();
  if (name == "sgd")
    return std::make_unique<SGD>(parameters, SGDOptions(1e-2).momentum(0.9).weight_decay(0.01));
  if (name == "adam") return std::make_unique<Adam>(parameters, AdamOptions(1e-2).amsgrad(true));
  if (name == "rmsprop")
    return std::make_unique<RMSprop>(parameters, RMSpropOptions(1e-3).momentum(0.5).centered(true));
  if (name == "adagrad")
    return std::make_unique<torch::optim::Adagrad>(parameters, AdagradOptions(1e-2));
  return std::make_unique<torch::optim::AdamW>(parameters, AdamWOptions(1e-2));
}

inline kernel::Assignment assignment_of(const std::string& sync, int ranks,
                                        const std::string& shares = "equal") {
  parallel::SyncPlan plan = parallel::plan_sync(sync, ranks, 0, 1);
  parallel::set_shares(plan, shares, ranks);
  return plan.assignment;
}

}  // namespace trireme::data_parallel_test
