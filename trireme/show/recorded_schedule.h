// A real run of a schedule, read back: the passes that ranks timed, as a schedule and a timeline
// that are drawn beside the simulated ones. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "trireme/show/drawn_schedule.h"

namespace trireme {
inline namespace v0 {
namespace show {

/// JSON lines {"event": "pass", "rank": 0, "pass": "F0.1", "begin": 0.01, "end": 0.02}, of one
/// step, in any order, seconds from any origin that ranks share (what json_of(DrawnSchedule)
/// writes); other events are skipped. The schedule is each rank's order of beginnings; its times
/// are the means of the passes of each stage, of B half for I and half for W where a stage has no
/// I. ConfigError with `where` and the line; or where the passes make no schedule that can run.
DrawnSchedule read_recorded(std::string_view text, const std::string& where);

/// The same schedule with the recorded times of passes and no messages: what the run would have
/// taken if nobody but the passes had needed time.
DrawnSchedule simulated_again(const DrawnSchedule& recorded);

/// Both figures: "recorded  bubble 31.0 %, 34.8 ms; ..." Two lines.
std::string compare_text(const DrawnSchedule& recorded, const DrawnSchedule& simulated);

}  // namespace show
}  // namespace v0
}  // namespace trireme
