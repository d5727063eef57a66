// A pipeline schedule, checked and simulated, as text: ranks against time, the bubble, the memory.
// (schedule_picture.h: as SVG and as a page.) Pure functions; lines end with a newline.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/plan/pipeline_simulator.h"
#include "trireme/plan/schedule.h"
#include "trireme/plan/schedule_check.h"

namespace trireme {
inline namespace v0 {
namespace show {

struct DrawnSchedule {
  std::string name, about;  // "1f1b"; one line, may be empty
  plan::Schedule schedule;
  plan::PipelineTimes times;
  plan::Timeline timeline;
  std::vector<plan::RankPeak> peaks;
};

/// Checks and simulates it. ConfigError where it cannot run, with the grid drawn.
DrawnSchedule draw(std::string name, std::string about, plan::Schedule schedule,
                   plan::PipelineTimes times);

/// "1f1b, 4 stages on 4 ranks, 8 micro-batches".
std::string name_of(const DrawnSchedule& drawn);
/// A line a rank, a column the shortest pass; in blocks where it is long. A pass fills its columns
/// with dashes, a dot is idleness.
std::string grid(const DrawnSchedule& drawn);
/// Bubble, live activations, open sums, messages; and what is odd about it.
std::string footer(const DrawnSchedule& drawn);
/// All of it.
std::string text_of(const DrawnSchedule& drawn);
/// JSON lines: the schedule, every pass with its time, the cost.
std::string json_of(const DrawnSchedule& drawn);

/// When passes begin and the end: the steps of --step and of the page.
std::vector<double> moments(const DrawnSchedule& drawn);
/// "time 3: rank 0 F0.3, rank 1 F1.2, rank 2 idle; 4, 3, 0 activations live".
std::string moment_text(const DrawnSchedule& drawn, double time);
/// How many activations are alive on `rank`: (from when, how many), from 0 on.
std::vector<std::pair<double, int>> live_activations(const DrawnSchedule& drawn, int rank);
/// "1", "2.5", "0.601": as short as it can be.
std::string time_text(double time);

}  // namespace show
}  // namespace v0
}  // namespace trireme
