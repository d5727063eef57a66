#include "trireme/show/schedule/recorded_schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/utf8.h"

namespace trireme::inline v0::show {
namespace {

using plan::ActionKind;

struct Pass {
  std::string text;
  double begin = 0, end = 0;
};

// Whether the name is exactly one word of a schedule's text.
bool is_one_word(const std::string& name) {
  return !name.empty() && name.find_first_of(" \t\r\n:#") == std::string::npos;
}

// The ranks' passes, sorted by beginning; the earliest begins at 0.
std::map<int, std::vector<Pass>> passes_of(std::string_view text, const std::string& where) {
  std::map<int, std::vector<Pass>> ranks;
  std::istringstream lines{std::string(text)};
  int number = 0;
  double origin = std::numeric_limits<double>::infinity();
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto fail = [&](const std::string& what) {
      throw ConfigError(where + ":" + std::to_string(number) + ": " + what,
                        {.operation = "show",
                         .advice = R"(A pass is {"event": "pass", "rank": 0, "pass": "F0.1", )"
                                   R"("begin": 0.01, "end": 0.02}.)"});
    };
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object()) fail("not a line of JSON");
    if (event.value("event", nlohmann::json()) != "pass") continue;
    const nlohmann::json rank = event.value("rank", nlohmann::json()),
                         name = event.value("pass", nlohmann::json());
    const nlohmann::json begin = event.value("begin", nlohmann::json()),
                         end = event.value("end", nlohmann::json());
    if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() > 9999 || !name.is_string() ||
        !is_one_word(name.get<std::string>()) || !begin.is_number() || !end.is_number() ||
        end.get<double>() < begin.get<double>())
      fail("not a pass with its rank and times");
    ranks[rank.get<int>()].push_back(
        {name.get<std::string>(), begin.get<double>(), end.get<double>()});
    origin = std::min(origin, begin.get<double>());
  }
  for (auto& [rank, passes] : ranks) {
    for (Pass& one : passes) one.begin -= origin, one.end -= origin;
    std::stable_sort(passes.begin(), passes.end(),
                     [](const Pass& a, const Pass& b) { return a.begin < b.begin; });
  }
  return ranks;
}

struct Mean {
  double sum = 0;
  int count = 0;
  double value() const { return count > 0 ? sum / count : 0; }
};

// Mean times per stage. F+B says nothing about its halves; schedules with it also have B and I.
std::vector<plan::StageTimes> mean_times(const plan::Schedule& schedule,
                                         const plan::Timeline& timeline) {
  std::map<std::pair<int, ActionKind>, Mean> means;
  for (const auto& passes : timeline.ranks) {
    for (const auto& [action, begin, end] : passes) {
      Mean& mean = means[{action.stage, action.kind}];
      mean.sum += end - begin;
      ++mean.count;
    }
  }
  std::vector<plan::StageTimes> times;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const auto mean = [&](ActionKind kind) { return means[{stage, kind}].value(); };
    const double whole = mean(ActionKind::Backward);
    plan::StageTimes one{mean(ActionKind::Forward), mean(ActionKind::BackwardInput),
                         mean(ActionKind::BackwardWeight)};
    if (one.input == 0 && one.weight == 0) one.input = one.weight = whole / 2;
    times.push_back(one);
  }
  return times;
}

}  // namespace

DrawnSchedule read_recorded(std::string_view text, const std::string& where) {
  const auto ranks = passes_of(text, where);
  std::string order;
  for (const auto& [rank, passes] : ranks) {
    order += std::to_string(rank) + ":";
    for (const Pass& one : passes) order += " " + one.text;
    order += "\n";
  }
  if (order.empty()) {
    throw ConfigError(where + " holds no passes",
                      {.operation = "show", .advice = "Record a step."});
  }
  DrawnSchedule recorded;
  recorded.name = escaped(where);
  recorded.about = "as it was recorded";
  recorded.schedule = plan::parse_schedule(order, where);
  recorded.peaks = plan::verify(recorded.schedule, where);
  plan::Timeline& timeline = recorded.timeline;
  timeline.ranks.resize(ranks.size());
  double busy = 0;
  for (const auto& [rank, passes] : ranks) {
    auto& mine = timeline.ranks[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < passes.size(); ++i) {
      mine.push_back({recorded.schedule.order[static_cast<std::size_t>(rank)][i], passes[i].begin,
                      passes[i].end});
      timeline.end = std::max(timeline.end, passes[i].end);
    }
    timeline.cost = std::max(timeline.cost, mine.back().end - mine.front().begin);
    busy += timeline.busy(rank);
  }
  timeline.bubble_rate = 1 - busy / static_cast<double>(ranks.size()) / timeline.cost;
  recorded.times = {mean_times(recorded.schedule, timeline), 0};
  return recorded;
}

DrawnSchedule simulated_again(const DrawnSchedule& recorded) {
  return draw(recorded.name, "the same passes, simulated with the recorded means",
              recorded.schedule, recorded.times);
}

std::string compare_text(const DrawnSchedule& recorded, const DrawnSchedule& simulated) {
  char text[256];
  std::snprintf(text, sizeof text,
                "recorded  bubble %.1f %%, %.4g s from first to last pass\n"
                "simulated bubble %.1f %%, %.4g s: passes as long as the recorded ones on average, "
                "nothing else takes time\n",
                100 * recorded.timeline.bubble_rate, recorded.timeline.cost,
                100 * std::max(0.0, simulated.timeline.bubble_rate), simulated.timeline.cost);
  return text;
}

}  // namespace trireme::inline v0::show
