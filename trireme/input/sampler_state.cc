#include "trireme/input/sampler_state.h"

#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/input/epoch_order.h"
#include "trireme/tensor/saved_count.h"

namespace trireme::inline v0::input {
namespace {

[[noreturn]] void refuse_checkpoint(const std::string& what) {
  throw CheckpointError(
      what,
      {.operation = "resume", .advice = "Resume with the data and batch of the checkpoint's run."});
}

}  // namespace

SamplerState::SamplerState(std::int64_t n, const SamplerOptions& options, int rank, int size,
                           std::function<void()> begins,
                           std::function<kernel::Assignment()> assignment,
                           std::function<void()> comes)
    : n_(n),
      options_(options),
      rank_(rank),
      size_(size),
      per_epoch_(options.batch > 0 ? batches_per_epoch(n, options.batch) : 0),
      begins_(std::move(begins)),
      comes_(std::move(comes)),
      assignment_(assignment ? std::move(assignment)
                             : [size] { return kernel::contiguous(size); }) {
  if (n <= 0) {
    throw ConfigError("a Sampler over " + std::to_string(n) + " samples",
                      {.operation = "input", .advice = "Give a dataset with samples in it."});
  }
  check_batch(options.batch, 1, size, n);  // the micro-batch is not known yet
}

void SamplerState::begin_pass() {
  const std::lock_guard lock(mutex_);
  const bool given_out = next_batch_ != batch_ || next_micro_step_ != micro_step_;
  if (begun_ && !read_ && given_out) {
    batch_ = (epoch_ + 1) * per_epoch_;
    micro_step_ = 0;
  }
  begun_ = true;
  epoch_ = batch_ / per_epoch_;
  next_batch_ = batch_;
  next_micro_step_ = micro_step_;
  fresh_ = true;
}

void SamplerState::learn_micro(std::int64_t micro) {
  if (micro_ == micro) return;
  if (micro_ != 0) {
    throw ConfigError("two loaders with batch sizes " + std::to_string(micro_) + " and " +
                          std::to_string(micro) + " share one Sampler",
                      {.operation = "input", .advice = "Give each loader its own Sampler."});
  }
  check_batch(options_.batch, micro, size_, n_);
  if (saved_micro_ != 0 && saved_micro_ != micro) {
    refuse_checkpoint("the checkpoint's micro-batch was " + std::to_string(saved_micro_) +
                      " samples and the loader's is " + std::to_string(micro));
  }
  micro_ = micro;
}

std::optional<std::vector<std::size_t>> SamplerState::next(std::int64_t micro) {
  std::unique_lock lock(mutex_);
  learn_micro(micro);
  if (std::exchange(fresh_, false) && begins_) {
    lock.unlock();
    begins_();  // may consume batches that this rank has no share of
    lock.lock();
    if (next_batch_ < batch_) {
      next_batch_ = batch_;
      next_micro_step_ = 0;
    }
  }
  if (comes_) {
    lock.unlock();
    comes_();
    lock.lock();
  }
  for (;;) {
    const GlobalBatch global = global_batch(next_batch_, n_, options_.batch);
    if (global.epoch != epoch_) return std::nullopt;
    const auto ranges = share_of(global, micro_, assignment_(), rank_);
    if (next_micro_step_ >= ranges.size()) {
      ++next_batch_;
      next_micro_step_ = 0;
      continue;
    }
    const MicroRange& range = ranges[next_micro_step_++];
    if (order_epoch_ != epoch_) {
      order_ = epoch_order(n_, options_.seed, epoch_, options_.shuffle);
      order_epoch_ = epoch_;
    }
    return std::vector<std::size_t>(order_.begin() + range.first,
                                    order_.begin() + range.first + range.count);
  }
}

std::optional<MicroStep> SamplerState::peek_locked() const {
  if (!begun_ || micro_ == 0) return std::nullopt;
  const GlobalBatch global = global_batch(batch_, n_, options_.batch);
  if (global.epoch != epoch_) return std::nullopt;
  const auto ranges = share_of(global, micro_, assignment_(), rank_);
  MicroStep step{.total = num_micro_batches(global, micro_),
                 .global_samples = global.count,
                 .batch_number = batch_,
                 .has_data = !ranges.empty(),
                 .last_of_batch = micro_step_ + 1 >= ranges.size(),
                 .last_of_epoch = global.last_of_epoch};
  if (step.has_data) {
    step.index = ranges[micro_step_].index;
    step.samples = ranges[micro_step_].count;
  }
  return step;
}

std::optional<MicroStep> SamplerState::peek() {
  const std::lock_guard lock(mutex_);
  read_ = true;
  return peek_locked();
}

void SamplerState::consume() {
  const std::lock_guard lock(mutex_);
  const auto step = peek_locked();
  TRIREME_CHECK(step.has_value());
  ++micro_step_;
  if (step->last_of_batch) {
    ++batch_;
    micro_step_ = 0;
  }
}

std::string SamplerState::metadata() const {
  const std::lock_guard lock(mutex_);
  return nlohmann::json{{"position", batch_},      {"samples", n_},
                        {"batch", options_.batch}, {"micro", micro_ != 0 ? micro_ : saved_micro_},
                        {"seed", options_.seed},   {"shuffle", options_.shuffle ? 1 : 0}}
      .dump();
}

void SamplerState::restored(const std::string& metadata) {
  const auto saved = nlohmann::json::parse(metadata, nullptr, false);
  const auto same = [&](const char* key, std::int64_t own) {
    require_saved(saved, key, own, "Sampler");
  };
  const std::lock_guard lock(mutex_);
  same("samples", n_);
  same("batch", options_.batch);
  same("seed", static_cast<std::int64_t>(options_.seed));
  same("shuffle", options_.shuffle ? 1 : 0);
  saved_micro_ = saved_count(saved, "micro");
  if (micro_ != 0 && saved_micro_ != 0) same("micro", micro_);
  batch_ = saved_count(saved, "position");
  micro_step_ = 0;
  begun_ = false;  // the next pass continues here
}

}  // namespace trireme::inline v0::input
