// The strict configuration reader: a Schema of keys, and a Config with a value for each.
//
// Order of precedence: default < file (TOML) < environment (TRIREME_PARALLEL_SYNC is parallel.sync)
// < --set key=value. An unknown key, a wrong type or a value out of range throws ConfigError, which
// names the file, the line and the nearest valid key. Plain values; const methods are thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trireme::inline v0::config {

enum class Type : std::uint8_t { Boolean, Integer, Number, Text };
/// "true or false", "an integer", "a number", "a text".
std::string_view describe(Type type) noexcept;

using Value = std::variant<bool, std::int64_t, double, std::string>;
/// The value in TOML: `true`, `12`, `0.001`, `"text"`.
std::string to_toml(const Value& value);

/// One key: its meaning and its valid values. The default's type is the key's type.
struct Key {
  std::string name;     // "train.learning_rate"
  Value fallback;       // the default
  std::string meaning;  // one line, with the unit
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};  // for a text; empty: any text
  bool identity = false;                  // part of a run's identity (docs/numerics.md)
  /// For a text: a file may also write it as an array of tables. [[a.b]] x = 1, y = "z" and [[a.b]]
  /// x = 2 give "x=1 y=z; x=2".
  bool tables = false;
  /// For a text: a file may also write it as a number; 1024 gives "1024".
  bool numbers = false;
  Type type() const noexcept { return static_cast<Type>(fallback.index()); }
};

class Schema {
 public:
  Schema& add(Key key);
  const std::vector<Key>& keys() const noexcept { return keys_; }
  const Key* find(std::string_view name) const noexcept;
  /// The key most similar to `name`: fewest edits to it or to its part after the last dot. Empty if
  /// every key differs in more than six letters and more than half of them.
  std::string nearest(std::string_view name) const;
  /// Throws ConfigError if `name` is not a key. `where` is "file:line" or "--set".
  const Key& at(std::string_view name, const std::string& where) const;
  /// Describes every key with type, default and meaning.
  std::string help() const;

 private:
  std::vector<Key> keys_;
};

/// Has getenv's signature; tests pass their own.
using Environment = std::function<const char*(const char*)>;

class Config {
 public:
  explicit Config(Schema schema);

  /// Throws ConfigError if the file is missing, is not TOML, or violates the schema.
  void read_file(const std::string& path);
  void read_text(std::string_view text, const std::string& path);
  void read_environment(const Environment& environment);
  /// Takes "key=value", as after --set. A text needs no quotes.
  void set(std::string_view assignment, const std::string& source = "--set");
  /// Sets a value that the program has computed. Checked like any other.
  void assign(const std::string& name, Value value, const std::string& source);

  bool boolean(std::string_view name) const { return std::get<bool>(value(name)); }
  std::int64_t integer(std::string_view name) const { return std::get<std::int64_t>(value(name)); }
  double number(std::string_view name) const { return std::get<double>(value(name)); }
  const std::string& text(std::string_view name) const {
    return std::get<std::string>(value(name));
  }
  const Value& value(std::string_view name) const { return entry(name).value; }
  /// "default", "gpt-nano.toml:7", "TRIREME_TRAIN_STEPS", "--set".
  const std::string& source(std::string_view name) const { return entry(name).source; }
  const Schema& schema() const noexcept { return schema_; }

  /// A TOML file that read_file() accepts. A comment gives each value's source.
  std::string to_toml() const;
  /// "key = value" lines of all identity keys, in schema order.
  std::string identity() const;

 private:
  struct Entry {
    Value value;
    std::string source;
  };
  const Entry& entry(std::string_view name) const;
  void store(const Key& key, Value value, const std::string& where, const std::string& source);
  Schema schema_;
  std::map<std::string, Entry, std::less<>> entries_;
};

/// The text that a TOML file gives `key`, read without a schema; nullopt if the file has no such
/// key or it is not a text. Throws ConfigError if the file is missing or is not TOML.
std::optional<std::string> text_in_file(const std::string& path, std::string_view key);

/// Sets NAME in the `NAME train --help-config` that errors recommend; "trireme" by default. Call it
/// before reading a configuration.
void name_program(std::string name);

/// "TRIREME_TRAIN_STEPS" for "train.steps".
std::string environment_name(std::string_view key);

}  // namespace trireme::inline v0::config
