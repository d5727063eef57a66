// InputPlan: what each coming step() contains. The Sampler knows that, and DataParallel consumes it
// (job/job_input.h). Thread safe.
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::inline v0 {

/// One micro-batch of this rank. If `has_data` is false, the global batch has no samples for this
/// rank, which then takes part in that step from within the previous step().
struct MicroStep {
  std::uint32_t index = 0, total = 0;  // micro-batch number, and the global batch's count
  std::int64_t samples = 0;            // in this micro-batch
  std::int64_t global_samples = 0;     // in the global batch
  std::int64_t batch_number = 0;       // number of global batches since the start
  bool has_data = true;
  bool last_of_batch = false;  // this rank's last of the global batch
  bool last_of_epoch = false;  // no global batch follows in this epoch
};

class InputPlan {
 public:
  virtual ~InputPlan() = default;
  /// Returns this rank's next micro-step that is not consumed yet; nullopt at the end of the epoch.
  virtual std::optional<MicroStep> peek() = 0;
  /// Consumes it. The Sampler saves the consumed position, not the prefetched one.
  virtual void consume() = 0;
};

}  // namespace trireme::inline v0
