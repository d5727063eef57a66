// ModelFamily: a value of model.name, with its keys, how a configuration becomes a model, and the
// default data and loss. `trireme train` finds every model here.
//
// The families of this release are registered from the start; a program registers its own before it
// reads a configuration. Registering is not thread safe, reading is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/config/config.h"
#include "trireme/models/block.h"
#include "trireme/models/figures.h"
#include "trireme/strategy/option_check.h"
#include "trireme/strategy/strategy.h"
#include "trireme/train/families/data_family.h"

namespace trireme::inline v0::train {

/// The figures of a model, for a plan.
struct ModelFigures {
  std::int64_t parameters = 0;
  std::int64_t largest_neighbours = 0;  // parameters of the largest two neighbouring blocks
  std::vector<models::BlockActivations> activations = {};  // of one micro-batch, block by block
  double temporaries = 0.31;  // other memory of forward and backward, as a share of activations
  double flops = 0;           // of a training step over one micro-batch; 0 = not known
  std::vector<models::Kernel> kernels = {};  // of one micro-batch; empty = not known
  /// All-reduces of tensor-parallel ranks in a micro-batch's passes: their number, bytes of each.
  int layer_sums = 0;
  std::int64_t layer_sum_bytes = 0;
  /// Experts of each mixture layer; 0 = no mixtures, -1 = not known. Then how many of `parameters`
  /// and of `largest_neighbours` belong to experts.
  int experts = -1;
  std::int64_t expert_parameters = 0, expert_neighbours = 0;
  bool rows_on_servers = false;  // it has a ServerEmbedding
  /// Which parts ranks can share. Empty: not known before the blocks are built.
  std::optional<parallel::ModelShape> shape = {};
};

/// Returns a micro-batch of `samples` held-out samples, for figures that are measured.
using Examples = std::function<MicroBatch(std::int64_t samples)>;
Examples examples_of(std::shared_ptr<const Dataset> held_out);

/// A model as a configuration describes it.
struct TrainingModel {
  std::string description;  // "gpt, 4 layers, ...", for the plan
  models::Blocks blocks;
  /// The figures for a micro-batch of `samples` samples. Empty: make_model() counts the parameters
  /// by building the blocks.
  std::function<ModelFigures(std::int64_t samples, const Examples& examples)> figures = {};
  /// A tiny model with the same parameter names. Empty: `blocks` are built to get the names.
  models::Blocks names = {};
  /// Bytes of text that it reads to write the next byte (generate); 0 = it writes no text.
  std::int64_t context = 0;
  // make_model() sets these, by data.name and train.loss.
  std::shared_ptr<const DataSource> data = nullptr;
  Loss loss = {};     // summed over a micro-batch's items
  Loss correct = {};  // number of right answers; empty: validation reports no accuracy
};

struct ModelFamily {
  std::string name;
  /// Its keys model.*, besides model.name. training_schema() makes them part of the identity.
  std::vector<config::Key> keys;
  /// Defaults of data.name and train.loss: names of a DataFamily and a LossFamily.
  std::string data = "text", loss = "tokens";
  std::function<TrainingModel(const config::Config& config)> make;
};

/// Throws ConfigError if the name is taken, a key does not begin with "model.", or its data or loss
/// is not registered.
void register_model(ModelFamily family);
/// nullptr if there is no model of that name.
const ModelFamily* find_model(const std::string& name);
/// The models of this release first, beginning with gpt.
std::vector<std::string> model_names();
/// The default of model.name: gpt. A program may choose another before it reads a configuration.
const std::string& default_model();
void choose_default_model(std::string name);

/// The model of model.name, with the data of data.name, the loss of train.loss, and its figures.
TrainingModel make_model(const config::Config& config);
/// The parameter names of `blocks`, which are built one at a time. A tied parameter appears once,
/// under its owner's name.
std::vector<std::string> parameter_names(const models::Blocks& blocks);
/// ConfigError if a block reads a value that no block before it writes and that `data` lacks.
void check_reads(const models::Blocks& blocks, const input::Fields& data);
/// Counts parameters by building one block at a time; a tied parameter counts once.
ModelFigures count_parameters(const models::Blocks& blocks);

/// The same for callers that build the blocks themselves.
class ParameterCount {
 public:
  explicit ParameterCount(const models::Blocks& blocks);
  /// Call for each block, in the order of the list.
  void add(const std::string& name, const std::shared_ptr<models::Block>& block);
  /// Parameters and largest_neighbours so far.
  const ModelFigures& figures() const noexcept { return figures_; }

 private:
  std::set<std::string> aliases_;
  std::int64_t before_ = 0;  // parameters of the block before
  ModelFigures figures_;
};

/// The family of a program's own model (own_parts.h). Its figures are measured (model_size.h).
/// Modules written for fp32 train in any precision (module_precision.h). Throws ConfigError for
/// invalid keys, and if `uses.data` is not registered.
ModelFamily own_model(const std::string& name, const std::vector<ModelKey>& keys, ModelFactory make,
                      const ModelUses& uses = {});

/// The families of this release.
ModelFamily gpt_family();
ModelFamily resnet18_family();
ModelFamily bert_family();
ModelFamily dlrm_family();
ModelFamily wide_and_deep_family();

}  // namespace trireme::inline v0::train
