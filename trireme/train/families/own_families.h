// A program's own models and data (own_parts.h), as families for model.name and data.name.
#pragma once

#include <string>
#include <vector>

#include "trireme/train/families/own_parts.h"

namespace trireme::inline v0::train {

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

}  // namespace trireme::inline v0::train
