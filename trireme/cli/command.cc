#include "trireme/cli/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <type_traits>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/nearest.h"
#include "trireme/base/words.h"
#include "trireme/cli/program.h"

namespace trireme::inline v0::cli {
namespace {

// "65,536", "0.5".
std::string bound_text(double bound) {
  const bool whole = std::floor(bound) == bound && std::abs(bound) < 1e15;
  return whole ? grouped(static_cast<std::int64_t>(bound)) : number_text(bound);
}

// Checks before CLI11, which reads 010 as 8 and says that a number out of range is no number.
template <class T>
std::string make_decimal(std::string& text) {
  T value = 0;
  if (std::is_unsigned_v<T> && text.starts_with('-'))
    return text + " is out of range: it must be at least 0";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument)
    return "\"" + text + "\" is not a " + (std::is_integral_v<T> ? "whole " : "") + "number";
  const bool below = text.starts_with('-');
  if (error != std::errc())
    return text + " is out of range: it must be at " + (below ? "least " : "most ") +
           bound_text(static_cast<double>(below ? std::numeric_limits<T>::lowest()
                                                : std::numeric_limits<T>::max()));
  if (std::is_integral_v<T>) text = std::to_string(value);
  return {};
}

template <class T>
struct Element {
  using type = T;
  static bool is_shown(const T& value) { return value > 0; }
};
template <>
struct Element<std::string> {
  using type = std::string;
  static bool is_shown(const std::string& value) { return !value.empty(); }
};
template <class T>
struct Element<std::vector<T>> {
  using type = T;
  static bool is_shown(const std::vector<T>& value) { return !value.empty(); }
};

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::in_range(double least, double most, const std::string& range) {
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    // NaN compares false with everything.
    if (value >= least && value <= most) return {};
    return text + " is out of range: it must be " + range;
  };
  option_->check(CLI::Validator(check, range, "range"));
  return *this;
}

Option& Option::at_least(double least) {
  return in_range(least, std::numeric_limits<double>::max(), "at least " + number_text(least));
}

Option& Option::between(double least, double most) {
  return in_range(least, most, "from " + bound_text(least) + " to " + bound_text(most));
}

Option& Option::filled() {
  const auto check = [](const std::string& text) {
    return std::string(text.empty() ? "the value is empty: give one, or leave the option out" : "");
  };
  option_->check(CLI::Validator(check, "", "filled"));
  return *this;
}

Option& Option::one_of(std::vector<std::string> words) {
  const std::string list = joined(words, {}, " | ");
  const auto check = [words, list](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return {};
    const std::string meant = nearest(text, words);
    return "\"" + text + "\" is not one of " + list +
           (meant.empty() ? "" : "; did you mean " + meant + "?");
  };
  option_->check(CLI::Validator(check, list, "words"));
  return completes(std::move(words));
}

Option& Option::completes(std::vector<std::string> words) {
  command_.words_[option_] = std::move(words);
  return *this;
}

Option& Option::shows_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::hides_default() {
  option_->default_str("");
  return *this;
}

Option& Option::values(int least, int most, char delimiter) {
  if (delimiter != '\0') option_->delimiter(delimiter);
  option_->expected(least, most);
  return *this;
}

Option& Option::repeatable() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

Option& Option::hidden() {
  option_->group("");
  return *this;
}

Command& Command::about(const std::string& text) {
  app_->description(text);
  return *this;
}

Command& Command::footer(std::string text) {
  const std::string own = "\n  trireme ", with = "\n  " + program_.name() + " ";
  for (std::size_t at = 0; (at = text.find(own, at)) != std::string::npos; at += with.size())
    text.replace(at, own.size(), with);
  app_->footer(text);
  return *this;
}

template <class T>
Option Command::option(const std::string& names, T& value, const std::string& about) {
  CLI::Option* const option = app_->add_option(names, value, about);
  if constexpr (std::is_arithmetic_v<typename Element<T>::type>)
    option->transform(CLI::Validator(make_decimal<typename Element<T>::type>, "", "decimal"));
  if (Element<T>::is_shown(value)) option->capture_default_str();
  return {option, *this};
}
template Option Command::option(const std::string&, std::string&, const std::string&);
template Option Command::option(const std::string&, int&, const std::string&);
template Option Command::option(const std::string&, std::int64_t&, const std::string&);
template Option Command::option(const std::string&, std::uint32_t&, const std::string&);
template Option Command::option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::option(const std::string&, double&, const std::string&);
template Option Command::option(const std::string&, std::vector<int>&, const std::string&);
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&);

Option Command::flag(const std::string& names, bool& value, const std::string& about) {
  return {app_->add_flag(names, value, about), *this};
}

bool Command::given(const std::string& option) const { return app_->count(option) > 0; }

std::string Command::first_given(std::initializer_list<const char*> options) const {
  for (const char* const one : options)
    if (given(one)) return one;
  return {};
}

Command& Command::hidden() {
  app_->group("");
  return *this;
}

void Command::hand_over() {
  app_->allow_extras();
  app_->set_help_flag();
  handed_over_ = true;
}

void Command::refuse(const std::string& why, const std::string& advice) {
  app_->group("")->allow_extras();
  app_->set_help_flag();
  std::string words = app_->get_name();  // "show overlap"
  for (const CLI::App* above = app_->get_parent();
       above != nullptr && above->get_parent() != nullptr; above = above->get_parent())
    words = above->get_name() + " " + words;
  run([name = std::move(words), why, advice]() -> int {
    throw ConfigError(name + " " + why, {.operation = name, .advice = advice});
  });
}

Command& Command::add(const std::string& name) {
  commands_.emplace_back(new Command(program_, app_->add_subcommand(name)));
  return *commands_.back();
}

Command* Command::find(const CLI::App* app) {
  if (app_ == app) return this;
  for (const auto& one : commands_)
    if (Command* const found = one->find(app)) return found;
  return nullptr;
}

void Command::require_subcommands() {
  if (!action_ && !handed_over_) app_->require_subcommand(1);
  for (const auto& one : commands_) one->require_subcommands();
}

DescribedOption Command::describe(const CLI::Option& option) const {
  DescribedOption out{.about = option.get_description(), .fallback = option.get_default_str()};
  if (option.nonpositional()) {
    for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
    for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
    if (option.get_type_size() != 0) out.value = option.get_type_name();
  } else {
    out.names = {option.get_name(true, false)};
    out.value = option.get_type_name();
  }
  // "INT:at least 1": the text that a check adds is only for help.
  out.value = out.value.substr(0, out.value.find(':'));
  out.many = option.get_expected_max() > 1;
  if (const auto words = words_.find(&option); words != words_.end()) out.words = words->second;
  out.files = out.words.empty() && out.value == "TEXT";
  return out;
}

DescribedCommand Command::describe() const {
  DescribedCommand out{
      .name = app_->get_name(), .about = app_->get_description(), .footer = app_->get_footer()};
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_group().empty()) continue;
    (option->nonpositional() ? out.options : out.positionals).push_back(describe(*option));
  }
  for (const auto& below : commands_)
    if (!below->app_->get_group().empty()) out.commands.push_back(below->describe());
  return out;
}

void say(bool json, std::string_view text) {
  std::fprintf(json ? stderr : stdout, "%.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(json ? stderr : stdout);
}

}  // namespace trireme::inline v0::cli
