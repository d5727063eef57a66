// The models and data that a program gives App (cli/torch/app.h). ModelKey is a configuration key,
// ModelValues and DataValues hold the values, and DataSource is data beyond tensors in memory.
//
// The launcher loads a DataSource's bytes once and shares them among the ranks of its host
// (input/shared_corpus.h); each rank makes its datasets from them. All are immutable, thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/input/corpus.h"
#include "trireme/input/dataset.h"
#include "trireme/models/block.h"
#include "trireme/strategy/strategy.h"

namespace trireme::inline v0 {

namespace config {
class Config;
struct Key;
}  // namespace config

/// A key. The key `width` is `model.width` in the configuration of a model, and `data.width` for
/// data. `fallback` is the default; its type (boolean, integer, number, text) is the key's type.
/// `meaning` says the unit.
struct ModelKey {
  std::string name;
  std::variant<bool, std::int64_t, double, std::string> fallback;
  std::string meaning;
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
};

/// The values of these keys in a configuration. Reading an unknown key, or a key as another type,
/// throws ConfigError with the known keys. An integer may be read as a number.
class OwnValues {
 public:
  /// `kind`: "model" or "data"; `name`: the name of the model or the data.
  OwnValues(std::string kind, std::string name, const std::vector<config::Key>& keys,
            const config::Config& config);
  const std::string& name() const noexcept;
  bool boolean(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  const std::string& text(std::string_view key) const;

  /// `train.seed` and `train.precision` (fp64 | fp32 | bf16 | fp16).
  std::uint64_t seed() const noexcept;
  const std::string& precision() const noexcept;
  /// "width 256, layers 4", without a key "block".
  std::string summary() const;

 private:
  struct Values;
  std::shared_ptr<const Values> values_;
};

class ModelValues : public OwnValues {
 public:
  ModelValues(std::string name, const std::vector<config::Key>& keys, const config::Config& config)
      : OwnValues("model", std::move(name), keys, config) {}
  /// Longest sequence, in tokens: `model.block`. For models over text.
  std::int64_t block() const { return integer("block"); }
  /// Number of different tokens of text.
  std::int64_t vocabulary() const noexcept { return 256; }
};

class DataValues : public OwnValues {
 public:
  DataValues(std::string name, const std::vector<config::Key>& keys, const config::Config& config)
      : OwnValues("data", std::move(name), keys, config) {}
};

namespace train {

/// The words for samples and items, in printed lines and events.
struct DataWords {
  std::string sample = "sequence";    // batch.global counts them
  std::string items = "tokens";       // a mean loss is over these: tokens | samples
  std::string unit = "nats a byte";   // of a loss
  std::string counted = "bytes";      // what `trireme eval` calls items
  std::int64_t items_per_sample = 1;  // such as 64 for sequences of 64 tokens
};

/// The words for data whose items are samples: tensors, images.
DataWords words_of_samples();

using Owner = std::shared_ptr<const void>;

/// The data of a job: bytes from files or memory, and the samples in them.
class DataSource {
 public:
  virtual ~DataSource() = default;
  /// Reads data.path: the bytes for training and for validation. Throws ConfigError if the path is
  /// missing or its content is not of this kind.
  virtual input::Corpus load(const std::string& path) const = 0;
  /// "data/x.bin: 4,000 images to train on, 2,000 held out".
  virtual std::string describe(const input::Corpus& corpus) const = 0;
  /// The samples in `bytes` (Corpus::train or Corpus::validation), which `owner` keeps alive.
  virtual std::shared_ptr<const Dataset> train(std::string_view bytes, Owner owner) const = 0;
  virtual std::shared_ptr<const Dataset> validation(std::string_view bytes, Owner owner) const = 0;
  virtual const DataWords& words() const = 0;
};

/// Named tensors whose first dim is the sample.
struct TensorSets {
  input::Fields train, validation;
};

/// For App::loss()'s `correct`: counts the rows of logits [.., classes] whose maximum is at the
/// class in the field "targets".
Loss class_matches();

}  // namespace train

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

}  // namespace trireme::inline v0
