// Sampler: this rank's micro-batches for torch::data::make_data_loader (docs/api.md).
//
//     auto loader = torch::data::make_data_loader(data, Sampler(job, n, {.batch = 64}), micro);
//
// The loader's batch size is the micro-batch; the Sampler tells DataParallel, through the Job,
// where a global batch ends and how many samples each micro-batch has. A short last batch is kept
// and weighted. Copies share one state. A loop over the loader is an epoch, in a new order each
// time; after a resume or a break, the next loop continues with the first batch that step() has not
// consumed. The saved position counts what step() consumed, not prefetched batches. Thread safe.
#pragma once

#include <torch/data/samplers/base.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/tensor/state.h"

namespace trireme::inline v0 {

class Job;

namespace input {
class SamplerState;
}

struct SamplerOptions {
  std::int64_t batch = 0;  // global batch, samples
  std::uint64_t seed = 1;
  bool shuffle = true;
  bool follow = true;  // the Job's DataParallel follows this Sampler; false for evaluation
};

class Sampler final : public torch::data::samplers::Sampler<std::vector<std::size_t>>,
                      public Saveable {
 public:
  /// `n` samples in the dataset. Throws ConfigError if n or batch is not positive, if a rank would
  /// have no sample, or if `follow` is true here and in another living Sampler of the Job.
  Sampler(Job& job, std::int64_t n, const SamplerOptions& options);
  /// A Sampler over a state that belongs to no Job.
  explicit Sampler(std::shared_ptr<input::SamplerState> state);
  ~Sampler() override;
  Sampler(const Sampler&);

  // The interface of torch::data; the loader calls it in its own thread.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  /// Throws ConfigError, with the arithmetic, if the micro-batch does not divide the batch or a
  /// rank would have no micro-batch in a full batch.
  std::optional<std::vector<std::size_t>> next(std::size_t micro) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  /// No tensors; the metadata has the position in global batches and all that decides the order.
  std::vector<NamedShard> state() override { return {}; }
  std::string metadata() const override;
  /// Throws CheckpointError, with both values, if the order or the micro-batch differs.
  void restored(const std::string& metadata) override;

 private:
  std::shared_ptr<input::SamplerState> state_;
};

}  // namespace trireme::inline v0
