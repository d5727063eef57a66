// A drawn schedule as a picture: one row per rank, time to the right, one box per pass, and below
// each row the number of live activations. As SVG, or as a page that plays it. Pure functions.
#pragma once

#include <string>

#include "trireme/show/schedule/drawn_schedule.h"

namespace trireme::inline v0::show {

std::string svg_of(const DrawnSchedule& drawn);
/// Two schedules, one above the other on one time axis, with `notes` (lines "label  text") below.
std::string svg_of(const DrawnSchedule& above, const DrawnSchedule& below,
                   const std::string& notes);
std::string html_of(const DrawnSchedule& drawn);

}  // namespace trireme::inline v0::show
