// A pipeline schedule, checked and simulated. As text: a grid of ranks over time, bubble, memory.
// As a picture: one row per rank, time to the right, one box per pass, and below each row the
// number of live activations. Pure functions; lines end with a newline.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/plan/schedule/pipeline_simulator.h"
#include "trireme/plan/schedule/schedule.h"
#include "trireme/plan/schedule/schedule_check.h"

namespace trireme::inline v0::show {

struct DrawnSchedule {
  std::string name, about;  // "1f1b"; one line, may be empty
  plan::Schedule schedule;
  plan::PipelineTimes times;
  plan::Timeline timeline;
  std::vector<plan::RankPeak> peaks;
};

/// Checks and simulates a schedule. `name` may be that of a file, with any bytes. ConfigError with
/// the grid drawn if the schedule cannot run.
DrawnSchedule draw(const std::string& name, std::string about, plan::Schedule schedule,
                   plan::PipelineTimes times);

/// "1f1b, 4 stages on 4 ranks, 8 micro-batches".
std::string name_of(const DrawnSchedule& drawn);
/// One line per rank, one column per shortest pass; long grids are split into blocks. Dashes fill
/// the columns of a pass, a dot marks an idle column.
std::string grid(const DrawnSchedule& drawn);
/// Bubble, live activations, open sums, messages, and remarks.
std::string footer(const DrawnSchedule& drawn);
/// Name, grid and footer.
std::string text_of(const DrawnSchedule& drawn);
/// JSON lines: the schedule, every pass with its times, the cost.
std::string json_of(const DrawnSchedule& drawn);
std::string svg_of(const DrawnSchedule& drawn);
/// Two schedules, one above the other on one time axis, with `notes` (lines "label  text") below.
std::string svg_of(const DrawnSchedule& above, const DrawnSchedule& below,
                   const std::string& notes);
/// A page that plays the schedule.
std::string html_of(const DrawnSchedule& drawn);

/// The times at which passes begin, and the end: the steps of --step and of the page.
std::vector<double> moments(const DrawnSchedule& drawn);
/// "time 3: rank 0 F0.3, rank 1 F1.2, rank 2 idle; 4, 3, 0 activations live".
std::string moment_text(const DrawnSchedule& drawn, double time);
/// Live activations on `rank` as (since when, how many), starting at time 0.
std::vector<std::pair<double, int>> live_activations(const DrawnSchedule& drawn, int rank);
/// "1", "2.5", "0.601": as short as possible.
std::string time_text(double time);

}  // namespace trireme::inline v0::show
