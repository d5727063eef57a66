// ModelFamily: a name that model.name can have, its keys, how a configuration becomes a model, and
// the data and loss that it has by default. The one place where `trireme train` learns of a model.
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

#include "trireme/base/config.h"
#include "trireme/models/activations.h"
#include "trireme/models/block.h"
#include "trireme/parallel/option_check.h"
#include "trireme/parallel/strategy.h"
#include "trireme/train/data_family.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// What a plan says of a model.
struct ModelFigures {
  std::int64_t parameters = 0;
  std::int64_t largest_neighbours = 0;  // parameters of the two neighbouring blocks that have most
  std::vector<models::BlockActivations> activations = {};  // of one micro-batch, block by block
  double temporaries = 0.31;  // what else forward and backward hold, over the activations
  double flops = 0;           // of a training step over one micro-batch; 0: not known
  /// What tensor-parallel ranks add up for a micro-batch, forward and backward: how often, and how
  /// many bytes each time.
  int layer_sums = 0;
  std::int64_t layer_sum_bytes = 0;
  /// Of each mixture; 0: there is none; -1: not known. Of `parameters` and `largest_neighbours`,
  /// those of experts.
  int experts = -1;
  std::int64_t expert_parameters = 0, expert_neighbours = 0;
  /// What ranks can share of it; none: not known before its blocks are built.
  std::optional<parallel::ModelShape> shape = {};
};

/// A micro-batch of so many held-out samples, for figures that are measured.
using Examples = std::function<MicroBatch(std::int64_t samples)>;
Examples examples_of(std::shared_ptr<const Dataset> held_out);

/// A model as a configuration describes it.
struct TrainingModel {
  std::string description;  // "gpt, 4 layers, ...", for the plan
  models::Blocks blocks;
  /// For a micro-batch of so many samples. Empty: parameters are counted by building the blocks.
  std::function<ModelFigures(std::int64_t samples, const Examples& examples)> figures = {};
  /// A model with the same names of parameters, as small as can be. Empty: `blocks` are built where
  /// names are asked for.
  models::Blocks names = {};
  /// Bytes of text that it reads to write the next one (generate); 0: it writes no text.
  std::int64_t context = 0;
  // These are make_model()'s, by data.name and train.loss.
  std::shared_ptr<const DataSource> data = nullptr;
  Loss loss = {};     // summed over a micro-batch's items
  Loss correct = {};  // right answers, summed as the loss is; empty: validation tells no accuracy
};

struct ModelFamily {
  std::string name;
  /// Of model.* (always part of the identity), beside model.name.
  std::vector<config::Key> keys;
  /// What it trains on where nothing else is said: names of a DataFamily and a LossFamily.
  std::string data = "text", loss = "tokens";
  std::function<TrainingModel(const config::Config& config)> make;
};

/// Throws ConfigError where the name is taken, a key is of another table, or there is no such data
/// or loss.
void register_model(ModelFamily family);
/// nullptr where there is none of that name.
const ModelFamily* find_model(const std::string& name);
/// Those of this release first, gpt before all.
std::vector<std::string> model_names();
/// What model.name is where nothing says: gpt, or what a program has chosen before it reads a
/// configuration.
const std::string& default_model();
void choose_default_model(std::string name);

/// The model that model.name says, with the data and the loss of data.name and train.loss, and its
/// figures.
TrainingModel make_model(const config::Config& config);
/// Those of `blocks`, by building one after the other; a tied one once, by its owner's name.
std::vector<std::string> parameter_names(const models::Blocks& blocks);
/// Throws ConfigError where a block reads what neither a block before it nor a field of `data`
/// gives.
void check_reads(const models::Blocks& blocks, const input::Fields& data);
/// Parameters of blocks, counted by building one after the other; a tied one counts once.
ModelFigures count_parameters(const models::Blocks& blocks);

/// The same for one who builds the blocks for other ends, too.
class ParameterCount {
 public:
  explicit ParameterCount(const models::Blocks& blocks);
  /// In the order of the list.
  void add(const std::string& name, models::Block& block);
  /// Parameters and largest_neighbours so far.
  const ModelFigures& figures() const noexcept { return figures_; }

 private:
  std::set<std::string> aliases_;
  std::int64_t before_ = 0;  // of the block before
  ModelFigures figures_;
};

/// The families of this release.
ModelFamily gpt_family();
ModelFamily resnet18_family();
ModelFamily bert_family();

}  // namespace train
}  // namespace v0
}  // namespace trireme
