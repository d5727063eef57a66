// What a recorded run cost, and what it would cost at another size and on another link (α–β–γ:
// plan/tuning.h). Rounds and bytes are the recording's; the formula is counted on the algorithm's
// routes, so tests can hold one against the other. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "trireme/plan/tuning.h"
#include "trireme/show/recording.h"

namespace trireme {
inline namespace v0 {
namespace show {

/// The shape of the algorithm that was recorded, from its routes; direct has none and sends
/// nothing.
plan::CostShape shape_of(const Recording& recording);

/// "6 α + 1.75 S β + 0.75 S γ".
std::string formula_of(const plan::CostShape& shape);

std::string seconds_text(double seconds);    // "1.23 ms"
std::string rate_text(double per_byte);      // "1 GB/s"
std::string count_text(std::size_t number);  // "12,345"
std::string size_text(std::size_t bytes);    // "64 B", "1 MiB"

}  // namespace show
}  // namespace v0
}  // namespace trireme
