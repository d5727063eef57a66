// A recording as JSON: what --json prints and what the HTML page plays. Pure.
#pragma once

#include <string>

#include "trireme/plan/tuning.h"
#include "trireme/show/recording.h"

namespace trireme {
inline namespace v0 {
namespace show {

/// One object a line: {"event": "show", ...}, one {"event": "round", ...} each, round 0 being what
/// was held before the first; {"event": "cost", ...} at the end.
std::string json_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes);

}  // namespace show
}  // namespace v0
}  // namespace trireme
