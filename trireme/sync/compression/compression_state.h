// CompressionState: what gradient compression keeps between steps, for checkpoints: residuals and
// PowerSGD's Q as tensors (docs/formats.md), and the number of steps in the metadata. Not thread safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trireme/sync/compression/compressor.h"

namespace trireme::inline v0::parallel {

class CompressionState {
 public:
  /// `compressors`: those of this rank's stages, which outlive this object. `speaks`: this rank says
  /// what people should know.
  CompressionState(std::string spec, std::vector<Compressor*> compressors, bool speaks);

  /// In the middle of a step, where an error has ended it, they have no elements: this rank has the
  /// state of no step.
  std::vector<NamedShard> shards() const;
  void save(nlohmann::json& metadata) const;
  /// After the shards were filled. Throws as saved_count().
  void restored(const nlohmann::json& metadata);
  /// Says, once, whether the training goes on with another state than the saved one. Call it in a
  /// step: who only evaluates does not need to know.
  void say();

 private:
  const std::string spec_;
  std::vector<Compressor*> compressors_;  // empty: nothing is kept
  const bool speaks_;
  std::string note_;
};

}  // namespace trireme::inline v0::parallel
