// Reads back a real run of a schedule: the passes that ranks timed become a schedule and a
// timeline, drawn beside the simulated ones. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "trireme/show/schedule/drawn_schedule.h"

namespace trireme::inline v0::show {

/// Reads the JSON lines {"event": "pass", "rank": 0, "pass": "F0.1", "begin": 0.01, "end": 0.02} of
/// one step (as json_of(DrawnSchedule) writes them), in any order, in seconds from an origin that
/// the ranks share; other events are skipped. A rank's passes are ordered by their beginnings. The
/// times of a stage are means; if a stage has no I, I and W each get half of B. ConfigError with
/// `where` and the line, or if the passes are not a schedule that can run.
DrawnSchedule read_recorded(std::string_view text, const std::string& where);

/// The same schedule with the recorded times of passes and free messages: the time that the run
/// would have taken if only the passes took time.
DrawnSchedule simulated_again(const DrawnSchedule& recorded);

/// One line each: "recorded  bubble 31.0 %, 0.0348 s from first to last pass".
std::string compare_text(const DrawnSchedule& recorded, const DrawnSchedule& simulated);

}  // namespace trireme::inline v0::show
