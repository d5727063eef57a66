// SamplerState: what all copies of one Sampler share: the order, the position of the loader, and
// the position of step(). DataParallel reads it as its InputPlan. Thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/input/batch_plan.h"
#include "trireme/input/loader_sampler.h"
#include "trireme/job/input_plan.h"

namespace trireme::inline v0::input {

class SamplerState final : public InputPlan {
 public:
  /// `begins` is called, without the lock, before the first micro-batch of a pass is returned, and
  /// `comes` before each. An empty `assignment` means contiguous shares.
  SamplerState(std::int64_t n, const SamplerOptions& options, int rank, int size,
               std::function<void()> begins = {},
               std::function<kernel::Assignment()> assignment = {},
               std::function<void()> comes = {});

  /// The loader begins a pass. It continues with the first batch that was not consumed: a new epoch
  /// after a full pass, the rest of the epoch after a resume or a break. If nobody has called peek()
  /// (no DataParallel reads this plan), every pass is a new epoch.
  void begin_pass();
  /// The samples of this rank's next micro-batch of `micro` samples; nullopt at the epoch's end.
  std::optional<std::vector<std::size_t>> next(std::int64_t micro);

  std::optional<MicroStep> peek() override;
  void consume() override;

  std::int64_t size() const noexcept { return n_; }
  std::string metadata() const;
  void restored(const std::string& metadata);

 private:
  std::optional<MicroStep> peek_locked() const;
  void learn_micro(std::int64_t micro);

  const std::int64_t n_;
  const SamplerOptions options_;
  const int rank_, size_;
  const std::int64_t per_epoch_;
  const std::function<void()> begins_, comes_;
  const std::function<kernel::Assignment()> assignment_;

  mutable std::mutex mutex_;
  std::int64_t micro_ = 0;        // the loader's batch size; 0 until its first request
  std::int64_t saved_micro_ = 0;  // micro_ in the checkpoint; 0 = none
  bool begun_ = false, read_ = false, fresh_ = false;
  std::int64_t epoch_ = 0;       // of the pass
  std::int64_t batch_ = 0;       // global batches consumed since the start
  std::size_t micro_step_ = 0;   // micro-batches of batch `batch_` that this rank consumed
  std::int64_t next_batch_ = 0;  // the same two for what the loader was given
  std::size_t next_micro_step_ = 0;
  std::int64_t order_epoch_ = -1;
  std::vector<std::int64_t> order_;
};

}  // namespace trireme::inline v0::input
