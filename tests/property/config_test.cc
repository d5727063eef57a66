// Properties of the configuration reader: what is written reads back equal, the last source wins,
// an unknown key is refused with the nearest one, any text gives a value or a ConfigError.
#include "trireme/base/config/config.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tests/property/draw.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

using namespace config;

// Texts of ASCII characters and of what quoting may get wrong.
rc::Gen<std::string> any_utf8() {
  std::vector<std::string> pieces{"\"", "'''", "\\", "\r\n", "\u00e9", "\u2028", "\U0001F600"};
  for (int c = 0; c < 0x80; ++c) pieces.emplace_back(1, static_cast<char>(c));
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(pieces)),
                      [](const std::vector<std::string>& chosen) {
                        return std::accumulate(chosen.begin(), chosen.end(), std::string());
                      });
}

Value draw_value(const Key& key, const std::string& title) {
  const auto bits = rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint64_t>());
  const auto number = [](std::uint64_t one) { return std::bit_cast<double>(one); };
  switch (key.type()) {
    case Type::Boolean:
      return *rc::gen::arbitrary<bool>().as(title);
    case Type::Integer:
      return static_cast<std::int64_t>(*bits.as(title));
    case Type::Number:
      return *rc::gen::suchThat(rc::gen::map(bits, number), [](double one) {
                return !std::isnan(one);
              }).as(title);
    default:
      return *any_utf8().as(title);
  }
}

// Keys in the root and in tables, of all types. Names are short, so that "a" and "a.b" meet.
Schema draw_schema() {
  const auto word = rc::gen::nonEmpty(
      rc::gen::resize(3, rc::gen::container<std::string>(rc::gen::element('a', 'b', '1', '-'))));
  const auto name = rc::gen::map(rc::gen::pair(word, rc::gen::maybe(word)), [](const auto& parts) {
    return parts.second ? parts.first + "." + *parts.second : parts.first;
  });
  Schema schema;
  for (const std::string& one :
       *rc::gen::nonEmpty(rc::gen::container<std::set<std::string>>(name)).as("keys")) {
    const Value fallbacks[] = {false, std::int64_t{0}, 0.0, std::string()};
    const Value& fallback = fallbacks[*in_range(0, 4).as("type of " + one)];
    schema.add({.name = one, .fallback = fallback, .meaning = "", .identity = one.size() > 1});
  }
  return schema;
}

void assert_equal(const Config& one, const Config& other) {
  for (const Key& key : one.schema().keys()) {
    RC_ASSERT(one.value(key.name) == other.value(key.name));
    RC_ASSERT(config::to_toml(one.value(key.name)) ==
              config::to_toml(other.value(key.name)));  // -0
  }
  RC_ASSERT(one.identity() == other.identity());
}

RC_GTEST_PROP(ConfigProperty, WhatIsWrittenReadsBackEqual, (const std::string& source)) {
  Config config(draw_schema()), again(config.schema());
  for (const Key& key : config.schema().keys())
    config.assign(key.name, draw_value(key, key.name), source);
  again.read_text(config.to_toml(), "again.toml");
  assert_equal(config, again);
}

RC_GTEST_PROP(ConfigProperty, TheLastSourceOfEachKeyWins, ()) {
  Config config(draw_schema()), expected(config.schema());
  std::string file;
  std::map<std::string, std::string> environment;
  std::vector<std::string> assignments;
  int lines = 0;
  for (const Key& key : config.schema().keys()) {
    const auto given_by = [&](const std::string& source) {
      const bool given = *rc::gen::arbitrary<bool>().as(key.name + " by " + source);
      if (given) expected.assign(key.name, draw_value(key, "value"), source);
      return given;
    };
    // Quotes around a text are taken off, so a text that has them gets another pair.
    const auto unquoted = [&] {
      const auto* text = std::get_if<std::string>(&expected.value(key.name));
      if (text == nullptr) return config::to_toml(expected.value(key.name));
      return text->starts_with('"') && text->ends_with('"') ? '"' + *text + '"' : *text;
    };
    if (given_by("job.toml:" + std::to_string(lines + 1))) {
      file += '"' + key.name + "\" = " + config::to_toml(expected.value(key.name)) + "\n";
      ++lines;
    }
    if (const std::string name = environment_name(key.name); given_by(name)) {
      environment[name] = unquoted();
      RC_PRE(environment[name].find('\0') == std::string::npos);  // no variable can hold it
    }
    if (given_by("--set")) assignments.push_back(key.name + "=" + unquoted());
  }
  config.read_text(file, "folder/job.toml");
  config.read_environment([&](const char* name) {
    return environment.contains(name) ? environment.at(name).c_str() : nullptr;
  });
  for (const std::string& assignment : assignments) config.set(assignment);
  assert_equal(config, expected);
  for (const Key& key : config.schema().keys())
    RC_ASSERT(config.source(key.name) == expected.source(key.name));
}

// The fewest edits between two words (Wagner and Fischer 1974), by the definition.
std::size_t edits(const std::string& a, const std::string& b, std::size_t i, std::size_t j) {
  if (i == a.size() || j == b.size()) return a.size() - i + b.size() - j;
  if (a[i] == b[j]) return edits(a, b, i + 1, j + 1);
  return 1 + std::min({edits(a, b, i + 1, j), edits(a, b, i, j + 1), edits(a, b, i + 1, j + 1)});
}
// To the whole key, or a little more to its part after the dot.
std::size_t cost(const std::string& word, const std::string& key) {
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  return std::min(2 * edits(word, key, 0, 0), 2 * edits(last(word), last(key), 0, 0) + 1);
}

RC_GTEST_PROP(ConfigProperty, AnUnknownKeyIsRefusedWithTheNearest, ()) {
  Config config(draw_schema());
  const std::vector<Key>& keys = config.schema().keys();
  std::string word = keys[*in_range<std::size_t>(0, keys.size()).as("key")].name;
  const std::vector<std::string> letters{"", "a", "z", "b."};
  for (int slips = *in_range(1, 4).as("slips"); slips > 0; --slips)
    word.replace(*in_range<std::size_t>(0, word.size() + 1), *in_range<std::size_t>(0, 3),
                 *rc::gen::elementOf(letters));
  const bool known = config.schema().find(word) != nullptr;
  RC_PRE(!known && !word.empty() && word.find("..") == std::string::npos);
  RC_PRE(word.front() != '.' && word.back() != '.');  // else TOML cannot hold it
  const bool in_file = *rc::gen::arbitrary<bool>().as("in a file");
  const auto blank = *in_range<std::size_t>(0, 4).as("blank lines");
  try {
    if (in_file) config.read_text(std::string(blank, '\n') + word + " = 1", "job.toml");
    if (!in_file) config.set(word + "=1");
  } catch (const ConfigError& error) {
    const std::string where = in_file ? "job.toml:" + std::to_string(blank + 1) : "--set";
    RC_ASSERT(error.message() == where + ": there is no key " + word);
    const std::string before = "Did you mean ", advice = error.advice();
    RC_ASSERT(advice.starts_with(before));
    const std::string nearest = advice.substr(before.size(), advice.find('?') - before.size());
    for (const Key& key : keys) RC_ASSERT(cost(word, nearest) <= cost(word, key.name));
    const bool there = config.schema().find(nearest) != nullptr;
    RC_ASSERT(there);
    return;
  }
  RC_FAIL("it was taken");
}

// Any exception but ConfigError ends the property.
RC_GTEST_PROP(ConfigProperty, AnyTextGivesAValueOrAConfigError, (const std::string& noise)) {
  const std::vector<std::string> slips{"=",   "a=",  "t.a=", "[t]\n", "[[t.a]]\n", "[",    "]",
                                       "{",   "}",   "'''",  "\"",    "\\u00",     "1e9",  "0x1",
                                       "nan", "inf", "1:2",  "true",  "\xff",      "\x01", noise};
  const std::vector<std::string> valid{"a = 3\n[t]\nb = false\na = \"x\" # no\n", "'a.b' = 1e9\n",
                                       "[[t.a]]\ny = 1\nz='1'\n", "t = {a = 1, b = true}\n"};
  std::string text = *rc::gen::elementOf(valid);
  for (int left = *in_range(0, 5).as("slips"); left > 0; --left)
    text.replace(*in_range<std::size_t>(0, text.size() + 1), *in_range<std::size_t>(0, 4),
                 *rc::gen::elementOf(slips));
  Schema schema;
  schema.add({"a", std::int64_t{1}, "", -5, 5}).add({"a.b", 0.5, "", 0}).add({"t.b", true, ""});
  schema.add({.name = "t.a", .fallback = std::string("x"), .tables = true, .numbers = true});
  Config config(schema), again(schema);
  const auto attempt = [](const auto& act) {
    try {
      act();
    } catch (const ConfigError&) {
    }
  };
  attempt([&] { config.read_text(text, "job.toml"); });
  attempt([&] { config.set(text); });
  for (const Key& key : schema.keys()) attempt([&] { config.set(key.name + "=" + text); });
  attempt([&] { config.read_environment([&](const char*) { return text.c_str(); }); });
  again.read_text(config.to_toml(), "again.toml");
  assert_equal(config, again);
}

}  // namespace
}  // namespace trireme
