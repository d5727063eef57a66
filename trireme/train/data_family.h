// DataFamily and LossFamily: names that data.name and train.loss can have, and how a configuration
// becomes data and a loss. As with ModelFamily, those of this release are registered from the
// start, and a program registers its own before it reads a configuration.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/parallel/strategy.h"
#include "trireme/train/data_source.h"

namespace trireme {
inline namespace v0 {
namespace train {

struct DataFamily {
  std::string name;
  /// Of data.*, beside data.name and data.path.
  std::vector<config::Key> keys;
  /// It is read in sequences of model.block.
  bool sequences = false;
  /// Its bytes are text: there is a trigram to compare with, and a model of it can write.
  bool text = false;
  std::function<std::shared_ptr<const DataSource>(const config::Config& config)> make;
};

/// Throws ConfigError where the name is taken, or a key is of another table.
void register_data(DataFamily family);
const DataFamily* find_data(const std::string& name);
std::vector<std::string> data_names();

struct LossFamily {
  std::string name;
  Loss loss;  // summed over a micro-batch's items
  /// A micro-batch's correct answers, summed as the loss is; empty: validation tells no accuracy.
  Loss correct = {};
};

void register_loss(LossFamily family);
const LossFamily* find_loss(const std::string& name);
std::vector<std::string> loss_names();

/// For LossFamily::correct: how many rows of logits [.., classes] are highest at field "targets".
Loss class_matches();

/// The data of this release: bytes of text; the same with some hidden; CIFAR-10's images.
DataFamily text_data();
DataFamily masked_text_data();
DataFamily image_data();

}  // namespace train
}  // namespace v0
}  // namespace trireme
