// DataFamily and LossFamily: the values of data.name and train.loss, and how a configuration
// becomes data and a loss. The families of this release are registered from the start; a program
// registers its own before it reads a configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/config/config.h"
#include "trireme/strategy/strategy.h"
#include "trireme/train/families/own_parts.h"

namespace trireme::inline v0::train {

struct DataFamily {
  std::string name;
  /// Its keys data.*, besides data.name and data.path. Key::identity: the key decides the bits.
  std::vector<config::Key> keys;
  /// Whether a sample is a sequence of model.block items.
  bool sequences = false;
  /// Whether its bytes are text: then a trigram is the baseline, and a model can write text.
  bool text = false;
  std::function<std::shared_ptr<const DataSource>(const config::Config& config)> make;
};

/// Throws ConfigError if the name is taken, or a key does not begin with "data.".
void register_data(DataFamily family);
const DataFamily* find_data(const std::string& name);
std::vector<std::string> data_names();

struct LossFamily {
  std::string name;
  Loss loss;  // summed over a micro-batch's items
  /// Number of correct answers in a micro-batch. Empty: validation reports no accuracy.
  Loss correct = {};
};

void register_loss(LossFamily family);
const LossFamily* find_loss(const std::string& name);
std::vector<std::string> loss_names();

/// The family of a program's own data (own_parts.h). Throws ConfigError for invalid keys.
DataFamily own_data(const std::string& name, const std::vector<ModelKey>& keys, TensorReader read,
                    DataWords words = words_of_samples());
DataFamily own_data(const std::string& name, const std::vector<ModelKey>& keys, SourceFactory make);

/// The data of this release: text, text with some bytes hidden, CIFAR-10's images, Criteo's clicks.
DataFamily text_data();
DataFamily masked_text_data();
DataFamily image_data();
DataFamily criteo_data();

/// Bytes of text, in windows of `block` bytes: fields "tokens" and "targets" (the next byte of
/// each), both [b, block]. `seed` decides the windows.
std::shared_ptr<const DataSource> text_source(std::int64_t block, std::uint64_t seed);
using ReadTensors = std::function<TensorSets(const std::string& path)>;
/// The tensors that `read` returns for data.path, `name` in messages. `seed` decides the order.
std::shared_ptr<const DataSource> tensor_source(std::string name, ReadTensors read, DataWords words,
                                                std::uint64_t seed);

/// Cross-entropy of a yes or no, and the number of right answers. The output is the logit of yes,
/// the field "targets" is 0 or 1.
Loss binary_loss();
Loss binary_matches();

}  // namespace trireme::inline v0::train
