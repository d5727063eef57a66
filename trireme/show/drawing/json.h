// A recording as JSON: the output of --json and the data of the HTML page. A pure function.
#pragma once

#include <string>

#include "trireme/plan/tuning.h"
#include "trireme/show/collective/recording.h"

namespace trireme::inline v0::show {

/// One object per line: {"event": "show", ...}, one {"event": "round", ...} per round (round 0 is
/// the state before the first), and {"event": "cost", ...} at the end.
std::string json_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes);

}  // namespace trireme::inline v0::show
