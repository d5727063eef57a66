// Models and data of a program's own, as families that a configuration chooses from by model.name
// and data.name. For App (cli/app.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/train/data_family.h"
#include "trireme/train/data_source.h"
#include "trireme/train/model_family.h"
#include "trireme/train/model_values.h"

namespace trireme {
inline namespace v0 {

using train::DataSource;
using train::DataWords;
using train::TensorSets;

/// A model from its values: a list of blocks.
using ModelFactory = std::function<models::Blocks(const ModelValues& values)>;
/// What a model trains on where the configuration does not say data.name and train.loss: text |
/// masked-text | images, tokens | classes, or a name that the program registers.
struct ModelUses {
  std::string data = "text", loss = "tokens";
};

/// Reads data.path: tensors to train on and held out, by field. Called once, in one process.
using TensorReader = std::function<TensorSets(const std::string& path, const DataValues& values)>;
/// Data that is more than tensors in memory.
using SourceFactory = std::function<std::shared_ptr<const DataSource>(const DataValues& values)>;

namespace train {

/// Sizes and figures are measured (model_size.h). Modules written for fp32 train in any precision
/// (module_precision.h). Throws ConfigError for keys that cannot be, and for a `uses.data` that is
/// not registered.
ModelFamily own_model(const std::string& name, const std::vector<ModelKey>& keys, ModelFactory make,
                      const ModelUses& uses = {});
DataFamily own_data(const std::string& name, const std::vector<ModelKey>& keys, TensorReader read,
                    DataWords words = words_of_samples());
DataFamily own_data(const std::string& name, const std::vector<ModelKey>& keys, SourceFactory make);

}  // namespace train
}  // namespace v0
}  // namespace trireme
