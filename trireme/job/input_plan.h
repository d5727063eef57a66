// Where Sampler (input) and DataParallel (parallel) meet, through the Job: the Sampler publishes
// what each coming step() is; DataParallel consumes it. Thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace trireme {
inline namespace v0 {

/// One micro-batch of this rank, or (has_data false) the note that the global batch had no share
/// for this rank; such a step is taken part in inside the step() before.
struct MicroStep {
  std::uint32_t index = 0, total = 0;  // micro-batch number and how many the global batch has
  std::int64_t samples = 0;            // in this micro-batch
  std::int64_t global_samples = 0;     // in the global batch
  std::int64_t batch_number = 0;       // global batches since the start
  bool has_data = true;
  bool last_of_batch = false;  // this rank's last of its global batch
  bool last_of_epoch = false;  // no global batch follows in this epoch
};

class InputPlan {
 public:
  virtual ~InputPlan() = default;
  /// The next not yet consumed micro-step of this rank; nullopt when the epoch has no more.
  virtual std::optional<MicroStep> peek() = 0;
  /// The Sampler's saved position counts what was consumed, not what workers prefetched.
  virtual void consume() = 0;
};

}  // namespace v0
}  // namespace trireme
