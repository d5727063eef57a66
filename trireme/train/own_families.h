// A program's own models and data, as families for model.name and data.name. For App (cli/torch/app.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/strategy/strategy.h"
#include "trireme/train/data_source.h"
#include "trireme/train/model_values.h"

namespace trireme::inline v0 {

using train::DataSource;
using train::DataWords;
using train::TensorSets;

/// Makes a model, a list of blocks, from its values.
using ModelFactory = std::function<models::Blocks(const ModelValues& values)>;
/// A model's defaults of data.name (text | masked-text | images) and train.loss (tokens | classes);
/// also names that the program registers.
struct ModelUses {
  std::string data = "text", loss = "tokens";
};

/// Reads data.path: tensors for training and validation, by field. Called once, in one process.
using TensorReader = std::function<TensorSets(const std::string& path, const DataValues& values)>;
/// Makes data that is more than tensors in memory.
using SourceFactory = std::function<std::shared_ptr<const DataSource>(const DataValues& values)>;

namespace train {

/// For App::loss()'s `correct`: counts the rows of logits [.., classes] whose maximum is at the
/// class in the field "targets".
Loss class_matches();

struct DataFamily;
struct ModelFamily;

/// The family of a program's own model. Its figures are measured (model_size.h). Modules written
/// for fp32 train in any precision (module_precision.h). Throws ConfigError for invalid keys, and
/// if `uses.data` is not registered.
ModelFamily own_model(const std::string& name, const std::vector<ModelKey>& keys, ModelFactory make,
                      const ModelUses& uses = {});
DataFamily own_data(const std::string& name, const std::vector<ModelKey>& keys, TensorReader read,
                    DataWords words = words_of_samples());
DataFamily own_data(const std::string& name, const std::vector<ModelKey>& keys, SourceFactory make);

}  // namespace train
}  // namespace trireme::inline v0
