// The cost of a recorded run, and its predicted cost at another size and on another link
// (plan/tuning.h). Rounds and bytes are those of the recording; the formula is computed from the
// algorithm's routes, so tests can compare the two. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "trireme/plan/tuning.h"
#include "trireme/show/collective/recording.h"

namespace trireme::inline v0::show {

/// The cost shape of the recorded algorithm, from its routes. Direct has no routes and sends
/// nothing.
plan::CostShape shape_of(const Recording& recording);

/// "6 a + 1.75 S b + 0.75 S g", with the Greek letters alpha, beta and gamma.
std::string formula_of(const plan::CostShape& shape);

std::string rate_text(double per_byte);  // "1 GB/s"

}  // namespace trireme::inline v0::show
