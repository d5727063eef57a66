// ModelKey, ModelValues and DataValues: the keys of a user's own model or data, and their values in
// a configuration. For App (cli/torch/app.h). Plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/config.h"

namespace trireme::inline v0 {

/// A key. The key `width` is `model.width` in the configuration of a model, and `data.width` for
/// data. `fallback` is the default; its type (boolean, integer, number, text) is the key's type.
/// `meaning` says the unit.
struct ModelKey {
  std::string name;
  config::Value fallback;
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
  const std::string& name() const noexcept { return name_; }
  bool boolean(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  const std::string& text(std::string_view key) const;

  /// `train.seed` and `train.precision` (fp64 | fp32 | bf16 | fp16).
  std::uint64_t seed() const noexcept { return seed_; }
  const std::string& precision() const noexcept { return precision_; }
  /// "width 256, layers 4", without a key "block".
  std::string summary() const;

 private:
  template <class T>
  const T& get(std::string_view key, config::Type type) const;
  [[noreturn]] void refuse(const std::string& what) const;
  std::string kind_, name_;
  std::vector<std::string> order_;
  std::map<std::string, config::Value, std::less<>> values_;
  std::uint64_t seed_ = 1;
  std::string precision_;
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

}  // namespace trireme::inline v0
