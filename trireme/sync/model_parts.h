// ModelParts: the pipeline stages that a rank holds, each with its parameters (without a pipeline:
// one stage with the whole list of blocks), and a table of all parameters of the model.
//
// Parameters are numbered over the whole model in the order of their first use, so a number means
// the same on every rank and for every cut. A tied parameter is stored in every stage that uses it.
// Not thread safe.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/placement/pipeline_plan.h"
#include "trireme/placement/stage.h"
#include "trireme/sync/batch_statistics.h"
#include "trireme/sync/gathers/parameter_store.h"

namespace trireme::inline v0::parallel {

/// One stage on this rank.
struct ModelPart {
  ModelPart(const models::Blocks& model, std::uint64_t seed, BlockRange range,
            StoreOptions options);
  int stage = 0;
  /// The ranks that hold the same stage. Each stage has its own group, because ranks may send for
  /// different stages in different orders. Must outlive the part.
  comm::Communicator* data = nullptr;
  ParameterStore store;
  Stage blocks;
  BatchStatistics statistics;
  std::vector<std::uint32_t> number;  // in the model, for each of the store's parameters
};

/// A parameter or buffer of the model, on any rank.
struct ModelTensor {
  std::string name;
  DType dtype = DType::F32;         // for a parameter: of its master weight
  at::ScalarType compute{};         // for a parameter: the type in which passes use it
  std::vector<std::int64_t> shape;  // of this rank's part
  models::Part part;                // set where ranks share layers
  bool decay = false;               // a parameter with weight decay
  std::vector<int> stages;          // the stages that hold it, ascending
  int owner = 0;  // the stage whose block gives a tied parameter its initial values
  std::int64_t count() const noexcept;
  std::int64_t whole_count() const;
};

class ModelParts {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::vector<std::size_t> cut;            // the first block of each stage, then the end
    std::vector<comm::Communicator*> data;   // one for each of this rank's stages
    comm::Communicator* pipeline = nullptr;  // null: no pipeline
    /// Makes the options of a stage's store; ModelParts sets `here`.
    std::function<StoreOptions(comm::Communicator& data)> store;
  };
  /// Collective over the pipeline and over each stage's ranks. ConfigError for a tie whose owner
  /// does not exist.
  ModelParts(const models::Blocks& model, const PipelinePlan& plan, Options options);

  const std::vector<std::unique_ptr<ModelPart>>& parts() const noexcept { return parts_; }
  /// The only part. For models without a pipeline.
  ModelPart& whole() const { return *parts_.front(); }

  /// The parameters and buffers of the whole model.
  const std::vector<ModelTensor>& parameters() const noexcept { return parameters_; }
  const std::vector<ModelTensor>& buffer_table() const noexcept { return buffers_; }
  std::vector<optim::ParameterInfo> infos() const;
  /// Names of the values that cross from stage s to s + 1.
  const std::vector<std::vector<std::string>>& values_after() const noexcept {
    return values_after_;
  }
  /// Elements of the whole model's parameters.
  std::int64_t num_elements() const;

  /// This rank's master weights; a parameter that two of its stages hold appears once.
  std::vector<NamedShard> masters() const;
  NamedTensors buffers() const;
  /// Whether a buffer of this rank is a frozen weight.
  bool is_frozen(const std::string& buffer) const;
  void refresh();
  void train(bool on);
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

}  // namespace trireme::inline v0::parallel
