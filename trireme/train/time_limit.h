// Parses a duration such as "11h50m", "90s" or "1.5h", for train.max_time. A pure function.
#pragma once

#include <optional>
#include <string>

#include "trireme/base/clock.h"

namespace trireme::inline v0::train {

/// Numbers with the units d, h, m (or min), s and ms, largest first; nullopt for an empty text.
/// Throws ConfigError, naming train.max_time, for anything else and for a duration of zero.
std::optional<Duration> parse_time_limit(const std::string& text);

}  // namespace trireme::inline v0::train
