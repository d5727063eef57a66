// ModelParts: what a rank holds of a model: its pipeline stages (without a pipeline one, the whole
// list), each with its parameters; and what every rank knows of the parameters of all of them.
//
// Parameters are numbered over the whole model in the order of their first use, so that a number
// means the same on every rank and whatever the cut. A tied parameter lives in every stage that
// uses it. Not thread safe.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/batch_statistics.h"
#include "trireme/parallel/parameter_store.h"
#include "trireme/parallel/pipeline/stage.h"
#include "trireme/parallel/pipeline_plan.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

/// One stage on this rank.
struct ModelPart {
  ModelPart(const models::Blocks& model, std::uint64_t seed, BlockRange range,
            StoreOptions options);
  int stage = 0;
  /// The ranks that hold the same stage; a group of its own, since what different stages send there
  /// may come in different orders. Outlives the part.
  comm::Communicator* data = nullptr;
  ParameterStore store;
  Stage blocks;
  BatchStatistics statistics;
  std::vector<std::uint32_t> number;  // in the model, of each of the store's parameters
};

/// A parameter or buffer of the model, wherever it is.
struct ModelTensor {
  std::string name;
  DType dtype = DType::F32;         // a parameter's: of its master weight
  std::vector<std::int64_t> shape;  // of this rank's part
  models::Part part;                // where ranks share layers
  std::vector<int> stages;          // that hold it, ascending
  int owner = 0;  // the stage whose block a tied parameter's first values come from
  std::int64_t count() const noexcept;
  std::int64_t whole_count() const;
};

class ModelParts {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::vector<std::size_t> cut;            // the first block of each stage, and the end
    std::vector<comm::Communicator*> data;   // of each of this rank's stages
    comm::Communicator* pipeline = nullptr;  // null: no pipeline
    /// Of a stage; `here` is filled in.
    std::function<StoreOptions(comm::Communicator& data)> store;
  };
  /// Collective over the pipeline, and over each stage's ranks. ConfigError for a tie to nothing.
  ModelParts(const models::Blocks& model, const PipelinePlan& plan, Options options);

  const std::vector<std::unique_ptr<ModelPart>>& parts() const noexcept { return parts_; }
  /// Where there is one part: without a pipeline.
  ModelPart& whole() const { return *parts_.front(); }

  /// Of the whole model.
  const std::vector<ModelTensor>& parameters() const noexcept { return parameters_; }
  const std::vector<ModelTensor>& buffer_table() const noexcept { return buffers_; }
  std::vector<optim::ParameterInfo> infos() const;
  /// Names of the values that cross from stage s to s + 1.
  const std::vector<std::vector<std::string>>& values_after() const noexcept {
    return values_after_;
  }
  /// Whole, wherever the parts are.
  std::int64_t num_elements() const;

  /// Of this rank; a parameter that two of its stages hold, once.
  std::vector<NamedShard> masters() const;
  NamedTensors buffers() const;
  std::vector<at::Tensor> cold_memory() const;
  void refresh();
  void train(bool on);
  void recompute(const memory::RecomputePolicy& policy);
  /// Empty: activations stay in memory.
  void offload_activations(const std::string& folder);
  std::int64_t offloaded_activation_bytes() const;
  void reload_statistics();
  void drop_statistics();

 private:
  void learn_all(const PipelinePlan& plan, comm::Communicator& pipeline);
  void share_tied(const PipelinePlan& plan, comm::Communicator& pipeline);

  std::vector<std::unique_ptr<ModelPart>> parts_;
  std::vector<ModelTensor> parameters_, buffers_;
  std::vector<std::vector<std::string>> values_after_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
