#include "trireme/show/schedule/drawn_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/utf8.h"
#include "trireme/base/words.h"
#include "trireme/plan/open_sums.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

using Json = nlohmann::ordered_json;
using plan::ActionKind;
using plan::TimedAction;

constexpr std::size_t kLineWidth = 100;  // characters
constexpr double kMostColumns = 2000;    // if passes are very uneven, the short ones are not drawn

// The time that one column of the grid represents.
double unit_of(const plan::Timeline& timeline) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const auto& passes : timeline.ranks)
    for (const TimedAction& one : passes)
      if (one.end > one.begin) shortest = std::min(shortest, one.end - one.begin);
  return std::max(shortest, timeline.end / kMostColumns);
}

// A rank's whole line, with `width` characters per column.
std::string lane_text(const std::vector<TimedAction>& passes, double unit, std::size_t columns,
                      std::size_t width) {
  std::string line;
  for (std::size_t i = 0; i < columns; ++i) line += "." + std::string(width - 1, ' ');
  const auto column = [&](double time) {
    return static_cast<std::size_t>(std::lround(time / unit));
  };
  for (const TimedAction& one : passes) {
    const std::size_t begin = column(one.begin) * width, end = column(one.end) * width;
    if (end <= begin) continue;
    std::string cell = plan::text_of(one.action);
    if (cell.size() < end - begin - 1 && end - begin > width) cell.resize(end - begin - 1, '-');
    cell.resize(end - begin, ' ');
    line.replace(begin, end - begin, cell);
  }
  return line;
}

// The length of the longest text that must fit one column.
std::size_t column_width(const plan::Timeline& timeline, double unit) {
  std::size_t width = 0;
  for (const auto& passes : timeline.ranks) {
    for (const TimedAction& one : passes) {
      const double columns = std::max(1.0, std::round((one.end - one.begin) / unit));
      const double text = static_cast<double>(plan::text_of(one.action).size()) + 1;
      width = std::max(width, static_cast<std::size_t>(std::ceil(text / columns)));
    }
  }
  return width;
}

std::string cost_line(const DrawnSchedule& drawn) {
  double busy = 0;
  for (int rank = 0; rank < drawn.schedule.ranks(); ++rank) busy += drawn.timeline.busy(rank);
  const plan::StageTimes& times = drawn.times.of(0);
  std::string text = "bubble    " + fixed(100 * std::max(0.0, drawn.timeline.bubble_rate), 1) +
                     " %: a rank works " + time_text(busy / drawn.schedule.ranks()) + " of " +
                     time_text(drawn.timeline.cost);
  if (drawn.times.stages.size() == 1) {
    text += " (F " + time_text(times.forward) + ", I " + time_text(times.input) + ", W " +
            time_text(times.weight) + ", B = I + W";
    if (drawn.times.message > 0) text += ", a message " + time_text(drawn.times.message);
    text += ")";
  }
  return text + "\n";
}

std::string memory_lines(const DrawnSchedule& drawn) {
  std::vector<int> live, inputs;
  for (const plan::RankPeak& peak : drawn.peaks) {
    live.push_back(peak.activations);
    inputs.push_back(peak.inputs);
  }
  const int chunks = drawn.schedule.stages() / drawn.schedule.ranks();
  std::string text = "live      at most " + listed(live) + " activations on ranks 0 to " +
                     std::to_string(drawn.schedule.ranks() - 1);
  if (drawn.schedule.ranks() == 1) text = "live      at most " + listed(live) + " activations";
  if (chunks > 1) text += ", each of 1/" + std::to_string(chunks) + " of a rank's layers";
  text += "\n";
  if (*std::max_element(inputs.begin(), inputs.end()) > 0)
    text += "inputs    at most " + listed(inputs) + " kept to compute activations again\n";
  const int sums = plan::open_sums(drawn.schedule.microbatches(), 1);
  return text + "sums      at most " + std::to_string(sums) + " open of each weight's gradients\n";
}

std::string message_line(const DrawnSchedule& drawn) {
  int hops = 0;
  const auto& rank_of = drawn.schedule.rank_of_stage;
  for (std::size_t stage = 1; stage < rank_of.size(); ++stage)
    hops += rank_of[stage] != rank_of[stage - 1] ? 1 : 0;
  const int each = hops * drawn.schedule.microbatches();
  return "messages  " + std::to_string(each) + " activations forward, " + std::to_string(each) +
         " gradients back\n";
}

}  // namespace

std::string time_text(double time) { return formatted("%.6g", time); }

DrawnSchedule draw(const std::string& name, std::string about, plan::Schedule schedule,
                   plan::PipelineTimes times) {
  DrawnSchedule drawn{
      escaped(name), std::move(about), std::move(schedule), std::move(times), {}, {}};
  drawn.peaks = plan::verify(drawn.schedule, drawn.name);
  drawn.timeline = plan::simulate(drawn.schedule, drawn.times);
  return drawn;
}

std::string name_of(const DrawnSchedule& drawn) {
  return drawn.name + ", " + counted(drawn.schedule.stages(), "stage") + " on " +
         counted(drawn.schedule.ranks(), "rank") + ", " +
         counted(drawn.schedule.microbatches(), "micro-batch", "micro-batches");
}

std::string grid(const DrawnSchedule& drawn) {
  const double unit = unit_of(drawn.timeline);
  const std::size_t width = column_width(drawn.timeline, unit);
  const std::size_t columns = static_cast<std::size_t>(std::lround(drawn.timeline.end / unit));
  const std::string last = "rank " + std::to_string(drawn.schedule.ranks() - 1);
  const std::size_t label = std::max<std::size_t>(last.size(), 6) + 2;
  const std::size_t block = std::max<std::size_t>(1, (kLineWidth - label) / width);
  std::vector<std::string> lanes;
  for (const auto& passes : drawn.timeline.ranks)
    lanes.push_back(lane_text(passes, unit, columns, width));
  std::string text;
  for (std::size_t first = 0; first < columns; first += block) {
    const std::size_t end = std::min(first + block, columns);
    const auto add = [&](const std::string& name, const std::string& line) {
      text += line_of(padded(name, label) + line);
    };
    std::string axis;
    for (std::size_t i = first; i < end; ++i) {
      std::string time = time_text(static_cast<double>(i) * unit);
      if (time.size() >= width) time.clear();  // too many digits for every column
      time.resize(width, ' ');
      axis += time;
    }
    if (first > 0) text += "\n";
    add("time", axis);
    for (std::size_t rank = 0; rank < lanes.size(); ++rank)
      add("rank " + std::to_string(rank), lanes[rank].substr(first * width, (end - first) * width));
  }
  return text;
}

std::string footer(const DrawnSchedule& drawn) {
  std::string text = cost_line(drawn) + memory_lines(drawn) + message_line(drawn);
  const int few = drawn.schedule.microbatches();
  if (few < drawn.schedule.ranks()) {
    text += "few       " + counted(few, "micro-batch", "micro-batches") + " for " +
            counted(drawn.schedule.ranks(), "rank") +
            ": some ranks are always idle; more micro-batches than ranks fill the pipeline\n";
  }
  return text;
}

std::string text_of(const DrawnSchedule& drawn) {
  return name_of(drawn) + (drawn.about.empty() ? "" : ": " + drawn.about) + "\n\n" + grid(drawn) +
         "\n" + footer(drawn);
}

std::vector<double> moments(const DrawnSchedule& drawn) {
  std::set<double> times;
  for (const auto& passes : drawn.timeline.ranks)
    for (const TimedAction& one : passes) times.insert(one.begin);
  times.insert(drawn.timeline.end);
  return {times.begin(), times.end()};
}

std::vector<std::pair<double, int>> live_activations(const DrawnSchedule& drawn, int rank) {
  std::set<std::pair<int, int>> again;  // recomputed passes: not alive after F
  const auto& passes = drawn.timeline.ranks[static_cast<std::size_t>(rank)];
  for (const TimedAction& one : passes)
    if (one.action.kind == ActionKind::Recompute)
      again.emplace(one.action.stage, one.action.microbatch);
  std::vector<std::pair<double, int>> live = {{0, 0}};
  const auto change = [&](double time, int by) {
    live.emplace_back(time, live.back().second + by);
  };
  for (const auto& [action, begin, end] : passes) {
    const bool kept =
        plan::goes_forward(action.kind) && !again.contains({action.stage, action.microbatch});
    if (kept || action.kind == ActionKind::Recompute) change(begin, 1);
    if (plan::adds_gradient(action.kind)) change(end, -1);
  }
  return live;
}

std::string moment_text(const DrawnSchedule& drawn, double time) {
  std::string text = "time " + time_text(time) + ":";
  std::vector<int> live;
  for (int rank = 0; rank < drawn.schedule.ranks(); ++rank) {
    std::string does = "idle";
    for (const auto& [action, begin, end] : drawn.timeline.ranks[static_cast<std::size_t>(rank)])
      if (begin <= time && time < end) does = plan::text_of(action);
    text += (rank > 0 ? ", rank " : " rank ") + std::to_string(rank) + " " + does;
    live.push_back(0);
    for (const auto& [from, count] : live_activations(drawn, rank))
      if (from <= time) live.back() = count;
  }
  return text + "; " + listed(live) + " activations live\n";
}

std::string json_of(const DrawnSchedule& drawn) {
  Json stages = Json::array();
  for (const plan::StageTimes& one : drawn.times.stages)
    stages.push_back({{"forward", one.forward}, {"input", one.input}, {"weight", one.weight}});
  std::string text = json_line({{"event", "schedule"},
                                {"name", drawn.name},
                                {"ranks", drawn.schedule.ranks()},
                                {"stages", drawn.schedule.stages()},
                                {"microbatches", drawn.schedule.microbatches()},
                                {"rank_of_stage", drawn.schedule.rank_of_stage},
                                {"times", std::move(stages)},
                                {"message", drawn.times.message},
                                {"text", plan::text_of(drawn.schedule)}});
  Json peaks = Json::array();
  const int open_sums = plan::open_sums(drawn.schedule.microbatches(), 1);
  for (int rank = 0; rank < drawn.schedule.ranks(); ++rank) {
    for (const auto& [action, begin, end] : drawn.timeline.ranks[static_cast<std::size_t>(rank)]) {
      text += json_line({{"event", "pass"},
                         {"rank", rank},
                         {"pass", plan::text_of(action)},
                         {"begin", begin},
                         {"end", end}});
    }
    const plan::RankPeak& peak = drawn.peaks[static_cast<std::size_t>(rank)];
    peaks.push_back({{"activations", peak.activations},
                     {"for_weights", peak.for_weights},
                     {"inputs", peak.inputs},
                     {"open_sums", open_sums},
                     {"busy", drawn.timeline.busy(rank)}});
  }
  return text + json_line({{"event", "cost"},
                           {"bubble_rate", drawn.timeline.bubble_rate},
                           {"cost", drawn.timeline.cost},
                           {"end", drawn.timeline.end},
                           {"ranks", std::move(peaks)}});
}

}  // namespace trireme::inline v0::show
