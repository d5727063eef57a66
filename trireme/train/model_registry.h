// Models by name: what `model.name` of a configuration may be, the keys of each, and how one is
// built. The program's own GPT stands in every registry; an App (cli/app.h) adds a user's.
//
// A model reads the batch field "tokens" [b, T] int64, T at most `model.block` and its values below
// 256 (bytes), and its last block gives logits [b, T, 256]. Plain values; const methods are thread
// safe.
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
  /// `train.seed` and `train.precision` (fp64 | fp32 | bf16).
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

/// What a plan needs to know of a model.
struct ModelSize {
  std::int64_t parameters = 0;          // a tied one counts once
  std::int64_t largest_neighbours = 0;  // of the two neighbouring blocks with most, ties included
  std::int64_t activation_bytes = 0;    // kept between forward and backward of a micro-batch
};

/// A model that the command knows.
struct ModelKind {
  std::string name;
  std::vector<config::Key> keys;  // under their whole names, "model.block" among them
  ModelFactory make;
  /// For people, without the name; empty: the values.
  std::function<std::string(const ModelValues&)> describe = {};
  /// Of micro-batches of so many sequences; empty: measured (model_size.h).
  std::function<ModelSize(const ModelValues&, std::int64_t sequences)> size = {};
};

class ModelRegistry {
 public:
  /// With the program's own models; `program` is its name in what users are told to type.
  explicit ModelRegistry(std::string program = "trireme");
  /// Modules written for fp32 train in any precision: in fp64 their parameters are widened, in bf16
  /// forward runs under Autocast unless the model has bf16 parameters of its own. Throws
  /// ConfigError for a name or a key that is there already.
  void add(std::string name, const std::vector<ModelKey>& keys, ModelFactory make);
  /// Null: none of that name.
  const ModelKind* find(std::string_view name) const noexcept;
  /// The first that was added; the program's own where none was.
  const ModelKind& standard() const noexcept { return kinds_.front(); }
  /// The standard one first.
  std::vector<std::string> names() const;
  const std::string& program() const noexcept { return program_; }

 private:
  std::string program_;
  std::vector<ModelKind> kinds_;  // those added, then the program's own
  std::size_t added_ = 0;
};

/// The registry of the program `trireme`.
const ModelRegistry& own_models();

/// The GPT of models/gpt.h.
ModelKind gpt_kind();

}  // namespace train
}  // namespace v0
}  // namespace trireme
