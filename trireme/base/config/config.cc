#include "trireme/base/config/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/config/toml_nesting.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/joined.h"
#include "trireme/base/nearest.h"
#include "trireme/base/parse_number.h"
#include "trireme/base/shortened.h"
#include "trireme/base/utf8.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::config {
namespace {

[[noreturn]] void refuse_config(const std::string& message, const std::string& advice) {
  throw ConfigError(message, {.advice = advice});
}

std::string& program() {
  static std::string name = "trireme";
  return name;
}

std::string help_config() { return "`" + program() + " train --help-config`"; }

// Writes a text in TOML. TOML can escape every character, but not bytes that are not UTF-8.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_control(c)) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04X", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string shortest(double value) {
  std::string out = number_text(value);
  // TOML distinguishes 1 (integer) from 1.0 (number).
  if (std::isfinite(value) && out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string_view last_part(std::string_view name) {
  const auto dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

std::string table_of(std::string_view name) {
  const auto dot = name.find('.');
  return dot == std::string_view::npos ? "" : std::string(name.substr(0, dot));
}

// The value of `key` that `text` (from an environment variable or --set) denotes.
Value parse_value(const Key& key, std::string_view text, const std::string& where) {
  switch (key.type()) {
    case Type::Boolean:
      if (text == "true" || text == "1") return true;
      if (text == "false" || text == "0") return false;
      break;
    case Type::Integer:
      if (const auto value = parse_number<std::int64_t>(text)) return *value;
      break;
    case Type::Number:
      if (const auto value = parse_number<double>(text)) return *value;
      break;
    case Type::Text:
      if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
        text = text.substr(1, text.size() - 2);
      }
      return std::string(text);
  }
  refuse_config(where + ": " + key.name + " must be " + std::string(describe(key.type())) +
                    ", not " + quoted(shortened(text)),
                help_config() + " lists every key with its type.");
}

std::string node_type(const toml::node& node) {
  std::ostringstream out;
  out << node.type();
  return out.str();
}

// Writes an array of tables as "x=1 y=z; x=2". `what`: its file, line and key.
std::optional<std::string> text_of_tables(const toml::array& array, const std::string& what) {
  std::string text;
  for (const toml::node& element : array) {
    const toml::table* table = element.as_table();
    if (table == nullptr) return std::nullopt;
    std::string entry;
    for (const auto& [name, node] : *table) {
      entry += (entry.empty() ? "" : " ") + std::string(name.str()) + "=";
      if (const auto* word = node.as_string()) {
        if (word->get().find_first_of("; \t\n") != std::string::npos)
          refuse_config(what + ": " + std::string(name.str()) + " = " + quoted(word->get()) +
                            " has a space or a ';' in it",
                        "Write one table for each word.");
        entry += word->get();
      } else if (const auto* whole = node.as_integer()) {
        entry += std::to_string(whole->get());
      } else if (const auto* real = node.as_floating_point()) {
        entry += shortest(real->get());
      } else {
        refuse_config(what + ": " + std::string(name.str()) +
                          " must be a text or a number, not a TOML " + node_type(node),
                      "Write a text in quotes.");
      }
    }
    text += (text.empty() ? "" : "; ") + entry;
  }
  return text;
}

Value node_value(const Key& key, const toml::node& node, const std::string& where) {
  switch (key.type()) {
    case Type::Boolean:
      if (const auto* value = node.as_boolean()) return value->get();
      break;
    case Type::Integer:
      if (const auto* value = node.as_integer()) return value->get();
      break;
    case Type::Number:
      if (const auto* value = node.as_floating_point()) return value->get();
      if (const auto* value = node.as_integer()) return static_cast<double>(value->get());
      break;
    case Type::Text:
      if (const auto* value = node.as_string()) return value->get();
      if (const auto* array = node.as_array(); array != nullptr && key.tables) {
        if (auto text = text_of_tables(*array, where + ": " + key.name)) return *std::move(text);
      }
      if (const auto* value = node.as_integer(); value != nullptr && key.numbers)
        return std::to_string(value->get());
      if (const auto* value = node.as_floating_point(); value != nullptr && key.numbers)
        return shortest(value->get());
      break;
  }
  refuse_config(where + ": " + key.name + " must be " + std::string(describe(key.type())) +
                    ", not a TOML " + node_type(node),
                help_config() + " lists every key with its type.");
}

void flatten(const toml::table& table, const std::string& prefix,
             const std::function<void(const std::string&, const toml::node&)>& visit) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const auto* inner = node.as_table()) {
      flatten(*inner, name + ".", visit);
    } else {
      visit(name, node);
    }
  }
}

std::string read_whole(const std::string& path) {
  return read_file(path, "the configuration ",
                   {.advice = "Give the path of a TOML file, for example configs/gpt-nano.toml."});
}

toml::table parse_toml(std::string_view text, const std::string& path) {
  if (const int line = too_deep_line(text); line > 0)
    refuse_config(path + ":" + std::to_string(line) + ": tables and arrays are nested more than " +
                      std::to_string(kMostNesting) + " deep",
                  "Write keys as TABLE.KEY = VALUE; " + help_config() + " lists every key.");
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    refuse_config(path + ":" + std::to_string(error.source().begin.line) + ": " +
                      std::string(error.description()),
                  "Correct this line; the file must be TOML.");
  }
}

}  // namespace

void name_program(std::string name) { program() = std::move(name); }

std::optional<std::string> text_in_file(const std::string& path, std::string_view key) {
  std::optional<std::string> found;
  flatten(parse_toml(read_whole(path), path), "",
          [&](const std::string& name, const toml::node& node) {
            if (const auto* text = node.as_string(); text != nullptr && name == key)
              found = text->get();
          });
  return found;
}

std::string_view describe(Type type) noexcept {
  constexpr std::string_view kTexts[] = {"true or false", "an integer", "a number", "a text"};
  return kTexts[static_cast<std::size_t>(type)];
}

std::string to_toml(const Value& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return shortest(*number);
  return quoted(std::get<std::string>(value));
}

std::string environment_name(std::string_view key) {
  std::string name = "TRIREME_";
  for (const char c : key) {
    name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

Schema& Schema::add(Key key) {
  TRIREME_CHECK(find(key.name) == nullptr);
  keys_.push_back(std::move(key));
  return *this;
}

const Key* Schema::find(std::string_view name) const noexcept {
  for (const Key& key : keys_) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string Schema::nearest(std::string_view name) const {
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  const auto compare = [&](const Key& key, std::string_view word, std::string_view meant,
                           std::size_t extra) {
    constexpr std::size_t kSlips = 6;  // of which a word may consist
    const std::size_t edits = edit_distance(word, meant), cost = 2 * edits + extra;
    const bool near = edits <= std::max(kSlips, std::max(word.size(), meant.size()) / 2);
    if (!near || cost >= least) return;
    least = cost;
    best = key.name;
  };
  for (const Key& key : keys_) {
    compare(key, name, key.name, 0);
    // A missing table ("learning_rate") costs half an edit, however long the table's name is.
    compare(key, last_part(name), last_part(key.name), 1);
  }
  return best;
}

const Key& Schema::at(std::string_view name, const std::string& where) const {
  if (const Key* key = find(name)) return *key;
  const std::string meant = nearest(name);
  refuse_config(
      where + ": there is no key " + std::string(name),
      (meant.empty() ? "" : "Did you mean " + meant + "? ") + help_config() + " lists every key.");
}

std::string Schema::help() const {
  std::ostringstream out;
  std::string table = "\n";
  for (const Key& key : keys_) {
    if (table_of(key.name) != table) {
      table = table_of(key.name);
      out << '\n';
    }
    out << key.name << " = " << config::to_toml(key.fallback) << "  (" << describe(key.type());
    if (!key.choices.empty()) out << ": " << joined(key.choices, {}, " | ");
    if (key.type() == Type::Integer || key.type() == Type::Number) {
      if (std::isfinite(key.minimum)) out << ", at least " << number_text(key.minimum);
      if (std::isfinite(key.maximum)) out << ", at most " << number_text(key.maximum);
    }
    out << ")\n    " << key.meaning << '\n';
  }
  return out.str();
}

Config::Config(Schema schema) : schema_(std::move(schema)) {
  for (const Key& key : schema_.keys()) entries_[key.name] = {key.fallback, "default"};
}

void Config::read_file(const std::string& path) { read_text(read_whole(path), path); }

void Config::read_text(std::string_view text, const std::string& path) {
  const toml::table table = parse_toml(text, path);
  // In line order, so that the first mistake in the file is reported.
  std::vector<std::pair<std::string, const toml::node*>> nodes;
  flatten(table, "", [&](const std::string& name, const toml::node& node) {
    nodes.emplace_back(name, &node);
  });
  std::stable_sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
    return a.second->source().begin.line < b.second->source().begin.line;
  });
  const std::string base = path.substr(path.rfind('/') + 1);
  std::map<std::string, std::string, std::less<>> lines;  // by key
  for (const auto& [name, node] : nodes) {
    const std::string line = ":" + std::to_string(node->source().begin.line);
    const Key& key = schema_.at(name, path + line);
    // TOML itself takes a = 1 in the table [t] and "t.a" = 2 for two keys.
    if (const auto [first, is_new] = lines.emplace(name, base + line); !is_new)
      refuse_config(path + line + ": " + name + " has a value already, from " + first->second,
                    "Leave one of them out.");
    store(key, node_value(key, *node, path + line), path + line, base + line);
  }
}

void Config::read_environment(const Environment& environment) {
  for (const Key& key : schema_.keys()) {
    const std::string name = environment_name(key.name);
    if (const char* text = environment(name.c_str())) {
      store(key, parse_value(key, text, name), name, name);
    }
  }
}

void Config::set(std::string_view assignment, const std::string& source) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    refuse_config(
        source + " " + std::string(assignment) + (equals == 0 ? " names no key" : " has no '='"),
        "Write --set key=value, for example --set train.steps=100.");
  }
  const Key& key = schema_.at(assignment.substr(0, equals), source);
  store(key, parse_value(key, assignment.substr(equals + 1), source), source, source);
}

void Config::assign(const std::string& name, Value value, const std::string& source) {
  const Key& key = schema_.at(name, source);
  TRIREME_CHECK(value.index() == key.fallback.index());
  store(key, std::move(value), source, source);
}

void Config::store(const Key& key, Value value, const std::string& where,
                   const std::string& source) {
  const std::string shown = config::to_toml(value);
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (!is_utf8(*text))
      refuse_config(where + ": " + key.name + " = \"" + escaped(*text) +
                        "\" is not valid UTF-8, which a TOML file must be",
                    "Give the file or folder a name in UTF-8.");
    const auto& all = key.choices;
    if (!all.empty() && std::find(all.begin(), all.end(), *text) == all.end())
      refuse_config(where + ": " + key.name + " cannot be " + shortened(shown),
                    "This release has: " + joined(all) + ".");
  }
  std::optional<double> number;
  if (const auto* integer = std::get_if<std::int64_t>(&value))
    number = static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) number = *real;
  // NaN passes every comparison with a bound, so it is refused explicitly.
  if (number && (std::isnan(*number) || *number < key.minimum || *number > key.maximum)) {
    std::string range;
    if (std::isfinite(key.minimum)) range = "at least " + number_text(key.minimum);
    if (std::isfinite(key.maximum))
      range += (range.empty() ? "at most " : " and at most ") + number_text(key.maximum);
    refuse_config(where + ": " + key.name + " = " + shown + " is out of range",
                  "It must be " + (range.empty() ? "a number" : range) + ".");
  }
  entries_[key.name] = {std::move(value), source};
}

const Config::Entry& Config::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  TRIREME_CHECK((found != entries_.end()));
  return found->second;
}

std::string Config::to_toml() const {
  std::ostringstream out;
  const auto line = [&](const std::string& left, const Entry& entry) {
    std::string text = left + " = " + config::to_toml(entry.value);
    text.resize(std::max<std::size_t>(text.size() + 2, 40), ' ');
    out << text << "# " << escaped(entry.source) << '\n';
  };
  // Keys of the root come first, because TOML cannot return to the root after a [table]. "timeout"
  // and "timeout.user_code" are both values, so the second is written with its dot quoted.
  const auto at_root = [&](const std::string& name) {
    const std::string table = table_of(name);
    return table.empty() || schema_.find(table) != nullptr;
  };
  for (const Key& key : schema_.keys()) {
    if (!at_root(key.name)) continue;
    const bool dotted = !table_of(key.name).empty();
    line(dotted ? quoted(key.name) : key.name, entries_.at(key.name));
  }
  // A table gets one header, even if its keys are not adjacent in the schema.
  std::vector<std::string> tables;
  for (const Key& key : schema_.keys()) {
    const std::string table = table_of(key.name);
    if (!at_root(key.name) && std::find(tables.begin(), tables.end(), table) == tables.end())
      tables.push_back(table);
  }
  for (const std::string& table : tables) {
    out << "\n[" << table << "]\n";
    for (const Key& key : schema_.keys())
      if (!at_root(key.name) && table_of(key.name) == table)
        line(key.name.substr(table.size() + 1), entries_.at(key.name));
  }
  return out.str();
}

std::string Config::identity() const {
  std::string out;
  for (const Key& key : schema_.keys()) {
    if (key.identity) out += key.name + " = " + config::to_toml(value(key.name)) + "\n";
  }
  return out;
}

}  // namespace trireme::inline v0::config
