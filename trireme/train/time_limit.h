// A duration as people write it, for train.max_time: "11h50m", "90s", "1.5h". A pure function.
#pragma once

#include <optional>
#include <string>

#include "trireme/base/clock.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// Numbers with the units d, h, m (or min), s and ms, largest first; empty: none. Throws
/// ConfigError, naming train.max_time, for anything else and for no time at all.
std::optional<Duration> parse_time_limit(const std::string& text);

}  // namespace train
}  // namespace v0
}  // namespace trireme
