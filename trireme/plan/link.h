// Links, times and sizes in the notation of the command line: "25us,1GB/s". Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "trireme/plan/tuning.h"

namespace trireme::inline v0::plan {

/// 25 us per message and 1 GB/s, a cluster's Ethernet; 10 GB/s of additions.
inline constexpr LinkCost kDefaultLink{25e-6, 1e-9, 1e-10};

/// "25us,1GB/s" or "25us,1GB/s,10GB/s" (additions). ConfigError that shows the form, also for
/// figures that no simulated network can count.
LinkCost link_of(std::string_view text);
/// "25us", "1.5ms", "2s": seconds. ConfigError.
double seconds_of(std::string_view text);
/// "1MiB", "64k", "4096": bytes. ConfigError.
std::size_t bytes_of(std::string_view text);

}  // namespace trireme::inline v0::plan
