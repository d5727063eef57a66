#include "trireme/strategy/gradient_noise.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "trireme/optim/gradient_square.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {
namespace {

constexpr double kKept = 0.99;  // weight of a running mean's old value, per step

}  // namespace

GradientNoise::GradientNoise(std::vector<std::uint32_t> parameter_of_leaf)
    : parameter_of_leaf_(std::move(parameter_of_leaf)) {
  std::uint32_t parameters = 0;
  for (const std::uint32_t parameter : parameter_of_leaf_)
    parameters = std::max(parameters, parameter + 1);
  uses_.resize(parameters, 0);
  squares_.resize(parameters);
  tied_.resize(parameter_of_leaf_.size());
  for (const std::uint32_t parameter : parameter_of_leaf_) ++uses_[parameter];
  for (std::size_t leaf = 0; leaf < parameter_of_leaf_.size(); ++leaf)
    if (uses_[parameter_of_leaf_[leaf]] > 1) tied_leaves_.push_back(leaf);
}

void GradientNoise::begin(std::uint32_t total, const kernel::Assignment& assignment, int rank) {
  for (auto& sum : sums_) sum.emplace(total, assignment, rank);
  micro_.clear();
  unread_.clear();
}

void GradientNoise::begin_micro(double weight) {
  weight_ = weight;
  std::fill(squares_.begin(), squares_.end(), at::Tensor());
}

void GradientNoise::gradient(std::size_t leaf, const at::Tensor& gradient) {
  const std::uint32_t parameter = parameter_of_leaf_[leaf];
  if (uses_[parameter] == 1) {
    squares_[parameter] = optim::gradient_square(gradient);
  } else {
    tied_[leaf] = gradient;
  }
}

void GradientNoise::end_micro(std::int64_t count) {
  const c10::AutoGradMode no_grad(false);
  // Adds the uses in block order, as for the batch's gradient.
  std::map<std::uint32_t, at::Tensor> sums;
  for (const std::size_t leaf : tied_leaves_) {
    at::Tensor own = std::exchange(tied_[leaf], {});
    if (!own.defined()) continue;
    own = own.to_dense().to(own.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    at::Tensor& sum = sums[parameter_of_leaf_[leaf]];
    sum = sum.defined() ? sum + own : own;
  }
  for (const auto& [parameter, sum] : sums) squares_[parameter] = optim::gradient_square(sum);
  const std::size_t before = unread_.size();
  for (const at::Tensor& one : squares_)
    if (one.defined()) unread_.push_back(one);
  micro_.push_back({count, weight_, unread_.size() - before});
}

void GradientNoise::read_squares() {
  const std::vector<double> squares = tensor::numbers_on_host(std::exchange(unread_, {}));
  auto next = squares.begin();
  for (const Micro& micro : std::exchange(micro_, {})) {
    double square = 0;
    for (std::size_t i = 0; i < micro.squares; ++i) square += *next++;
    square *= micro.weight * micro.weight;
    const double items = static_cast<double>(micro.count);
    sums_[0]->add(micro.count > 0 ? square / (items * items) : 0.0);
    sums_[1]->add(micro.count > 0 ? 1 / items : 0.0);
    sums_[2]->add(micro.count > 0 ? 1.0 : 0.0);
  }
}

Work GradientNoise::reduce(comm::Communicator& world, const ReduceTerms& how) {
  read_squares();
  const std::array<Work, 3> works = {sums_[0]->reduce(world, how, "micro-batch norms"),
                                     sums_[1]->reduce(world, how, "micro-batch sizes"),
                                     sums_[2]->reduce(world, how, "micro-batches")};
  return Work::all(works);
}

void GradientNoise::finish(double gradient_norm, std::int64_t count) {
  const double micro_batches = sums_[2]->sum();
  if (micro_batches == 0 || count == 0) return;
  const double small = sums_[0]->sum() / micro_batches;
  const double per_item = sums_[1]->sum() / micro_batches;
  const double per_batch_item = 1 / static_cast<double>(count);
  if (per_item <= per_batch_item) return;  // one micro-batch: nothing to compare with
  const double noise = (small - gradient_norm * gradient_norm) / (per_item - per_batch_item);
  const double signal = gradient_norm * gradient_norm - noise * per_batch_item;
  state.signal = kKept * state.signal + (1 - kKept) * signal;
  state.noise = kKept * state.noise + (1 - kKept) * noise;
  ++state.steps;
}

// Both running means start at 0. Their bias is the same factor, which cancels in the ratio.
std::optional<double> GradientNoise::scale() const {
  if (state.steps == 0 || !(state.signal > 0) || !(state.noise >= 0)) return std::nullopt;
  return state.noise / state.signal;
}

}  // namespace trireme::inline v0::parallel
