#include "trireme/plan/tuning.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <tuple>
#include <utility>

#include "trireme/base/config/toml_nesting.h"
#include "trireme/base/refuse.h"
#include "trireme/base/transports.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::plan {
namespace {

constexpr std::int64_t kVersion = 1;

auto key_of(const Measurement& m) {
  return std::tie(m.collective, m.transport, m.ranks, m.algorithm, m.bytes);
}

std::string number(double value) { return formatted("%.4e", value); }

[[noreturn]] void refuse_at(const std::string& path, const toml::source_region& where,
                            const std::string& what) {
  refuse("tuning", path + ":" + std::to_string(where.begin.line) + ": " + what,
         "Write it anew with `trireme bench comm --tune`, or delete it.");
}

double positive_of(const toml::table& table, const char* key, const std::string& path) {
  const auto value = table[key].value<double>();
  if (!value || !std::isfinite(*value) || *value < 0)
    refuse_at(path, table.source(), std::string(key) + " must be a number, zero or more");
  return *value;
}

std::string text_of(const toml::table& table, const char* key, const std::string& path) {
  const auto value = table[key].value<std::string>();
  if (!value || value->empty()) refuse_at(path, table.source(), std::string(key) + " is missing");
  return *value;
}

template <class Number = std::int64_t>
Number count_of(const toml::table& table, const char* key, const std::string& path) {
  const auto value = table[key].value<std::int64_t>();
  constexpr std::int64_t kMost = std::numeric_limits<Number>::max();
  if (!value || *value < 1 || *value > kMost)
    refuse_at(path, table.source(),
              std::string(key) + " must be an integer from 1 to " + std::to_string(kMost));
  return static_cast<Number>(*value);
}

Tuning read(const toml::table& table, const std::string& path) {
  if (const auto version = count_of(table, "version", path); version != kVersion)
    refuse_at(path, table.source(), "version " + std::to_string(version) + " is not known here");
  Tuning tuning;
  tuning.machine = table["machine"].value_or(std::string());
  if (const toml::table* links = table["link"].as_table()) {
    for (const auto& [name, node] : *links) {
      const toml::table* link = node.as_table();
      if (!link) refuse_at(path, node.source(), "a link is a table of alpha, beta, gamma");
      tuning.links[std::string(name.str())] = {positive_of(*link, "alpha", path),
                                               positive_of(*link, "beta", path),
                                               positive_of(*link, "gamma", path)};
    }
  }
  if (const toml::array* measured = table["measured"].as_array()) {
    for (const toml::node& node : *measured) {
      const toml::table* one = node.as_table();
      if (!one) refuse_at(path, node.source(), "a measurement is a table");
      tuning.add({text_of(*one, "collective", path), text_of(*one, "algorithm", path),
                  text_of(*one, "transport", path), count_of<int>(*one, "ranks", path),
                  static_cast<std::size_t>(count_of(*one, "bytes", path)),
                  positive_of(*one, "seconds", path)});
    }
  }
  return tuning;
}

}  // namespace

void Tuning::add(Measurement measurement) {
  const auto before = [](const Measurement& a, const Measurement& b) {
    return key_of(a) < key_of(b);
  };
  const auto place = std::lower_bound(measured_.begin(), measured_.end(), measurement, before);
  if (place != measured_.end() && key_of(*place) == key_of(measurement)) {
    place->seconds = measurement.seconds;  // the later measurement replaces the earlier one
  } else {
    measured_.insert(place, std::move(measurement));
  }
}

std::optional<double> Tuning::seconds(std::string_view collective, std::string_view algorithm,
                                      std::string_view transport, int ranks,
                                      std::size_t bytes) const {
  const Measurement *below = nullptr, *above = nullptr;  // the neighbours, by size
  for (const Measurement& m : measured_) {
    if (m.collective != collective || m.algorithm != algorithm || m.transport != transport ||
        m.ranks != ranks)
      continue;
    if (m.bytes <= bytes) below = &m;
    if (m.bytes >= bytes && !above) above = &m;
  }
  if (!below && !above) return std::nullopt;
  if (!below) return above->seconds;
  if (!above)
    return below->seconds * static_cast<double>(bytes) / static_cast<double>(below->bytes);
  if (above->bytes == below->bytes) return below->seconds;
  const double share =
      std::log(static_cast<double>(bytes) / static_cast<double>(below->bytes)) /
      std::log(static_cast<double>(above->bytes) / static_cast<double>(below->bytes));
  const double least = 1e-12;  // a clock may have measured zero
  return std::exp(std::log(std::max(below->seconds, least)) * (1 - share) +
                  std::log(std::max(above->seconds, least)) * share);
}

Tuning Tuning::from_toml(std::string_view text, const std::string& path) {
  if (const int line = too_deep_line(text); line > 0) {
    const toml::source_position at{static_cast<toml::source_index>(line), 1};
    refuse_at(path, {at, at, nullptr}, "it is nested too deeply");
  }
  try {
    return read(toml::parse(text, path), path);
  } catch (const toml::parse_error& error) {
    refuse_at(path, error.source(), std::string(error.description()));
  }
}

std::string Tuning::to_toml() const {
  std::ostringstream out;
  out << "# Collectives as measured by `trireme bench comm --tune`. Delete this file, and\n"
         "# comm.algorithm = \"auto\" goes by the cost formulas again.\n"
      << "version = " << kVersion << "\n"
      << toml::table{{"machine", machine}} << "\n";
  out << "measured = [\n";
  for (const Measurement& m : measured_) {
    out << "  {collective = \"" << m.collective << "\", transport = \"" << m.transport
        << "\", ranks = " << m.ranks << ", algorithm = \"" << m.algorithm
        << "\", bytes = " << m.bytes << ", seconds = " << number(m.seconds) << "},\n";
  }
  out << "]\n";
  for (const auto& [transport, link] : links) {
    out << "\n[link." << transport << "]  # seconds: per message, per byte sent, per byte added\n"
        << "alpha = " << number(link.alpha) << "\nbeta = " << number(link.beta)
        << "\ngamma = " << number(link.gamma) << "\n";
  }
  return out.str();
}

LinkCost typical_link(std::string_view transport) noexcept {
  const TransportFacts* const known = find_transport(transport);
  if (!known) return {25e-6, 1 / 1e9, 1 / 10e9};
  return {known->latency, known->byte_time, 1 / 10e9};
}

std::string tuning_path() {
  for (const auto& [variable, below] : {std::pair{"TRIREME_TUNING", ""},
                                        {"XDG_CONFIG_HOME", "/trireme/tuning.toml"},
                                        {"HOME", "/.config/trireme/tuning.toml"}})
    if (const char* value = std::getenv(variable); value != nullptr && *value != '\0')
      return std::string(value) + below;
  return {};
}

}  // namespace trireme::inline v0::plan
