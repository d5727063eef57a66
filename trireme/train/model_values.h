// ModelKey and ModelValues: the keys of a model of one's own, and what a configuration says of
// them. For App (cli/app.h). Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/models/block.h"

namespace trireme {
inline namespace v0 {

/// A key of a model: `width` is `model.width` of the configuration. The default's type (true or
/// false, integer, number, text) is the key's; `meaning` says the unit.
struct ModelKey {
  std::string name;
  config::Value fallback;
  std::string meaning;
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
};

/// What a configuration says of a model's keys. Reading a key that the model does not have, or as
/// another type, throws ConfigError naming those that it has. An integer may be read as a number.
class ModelValues {
 public:
  ModelValues(std::string model, const std::vector<config::Key>& keys,
              const config::Config& config);
  bool boolean(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  const std::string& text(std::string_view key) const;

  /// Longest sequence, in tokens: `model.block`.
  std::int64_t block() const { return integer("block"); }
  /// Values that a token may have.
  std::int64_t vocabulary() const noexcept { return 256; }
  /// `train.seed` and `train.precision` (fp64 | fp32 | bf16 | fp16).
  std::uint64_t seed() const noexcept { return seed_; }
  const std::string& precision() const noexcept { return precision_; }
  /// "width 256, layers 4".
  std::string summary() const;

 private:
  template <class T>
  const T& get(std::string_view key, config::Type type) const;
  [[noreturn]] void refuse(const std::string& what) const;
  std::string model_;
  std::vector<std::string> order_;
  std::map<std::string, config::Value, std::less<>> values_;
  std::uint64_t seed_ = 1;
  std::string precision_;
};

/// A model from its values: a list of blocks.
using ModelFactory = std::function<models::Blocks(const ModelValues& values)>;

namespace train {

struct ModelFamily;

/// A language model over bytes as a family of models: text for data, model.block for its sequences,
/// and figures that are measured (model_size.h). Modules written for fp32 train in any precision
/// (module_precision.h). Throws ConfigError for keys that cannot be.
ModelFamily text_family(const std::string& name, const std::vector<ModelKey>& keys,
                        ModelFactory make);

}  // namespace train
}  // namespace v0
}  // namespace trireme
