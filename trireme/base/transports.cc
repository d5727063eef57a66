#include "trireme/base/transports.h"

#include <algorithm>

namespace trireme::inline v0 {
namespace {

#define TRIREME_TRANSPORT(name, maps, latency, byte_time) {#name, maps, latency, byte_time},
constexpr TransportFacts kTransports[] = {
#include "trireme/base/transports.inc"
};
#undef TRIREME_TRANSPORT

}  // namespace

const TransportFacts* find_transport(std::string_view name) noexcept {
  const auto* const found = std::find_if(std::begin(kTransports), std::end(kTransports),
                                         [&](const auto& one) { return one.name == name; });
  return found == std::end(kTransports) ? nullptr : found;
}

bool maps_within_host(std::string_view name) noexcept {
  const TransportFacts* const known = find_transport(name);
  return name == "auto" || (known && known->maps);
}

std::vector<std::string> transport_choices(std::initializer_list<std::string_view> more) {
  std::vector<std::string> choices{"auto"};
  for (const TransportFacts& one : kTransports) choices.emplace_back(one.name);
  choices.insert(choices.end(), more.begin(), more.end());
  return choices;
}

std::string one_of(const std::vector<std::string>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < choices.size() ? ", " : " or ") + choices[i];
  }
  return text;
}

}  // namespace trireme::inline v0
