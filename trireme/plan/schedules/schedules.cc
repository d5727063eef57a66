#include "trireme/plan/schedules/schedules.h"

#include <algorithm>
#include <array>

#include "trireme/base/error.h"

namespace trireme::inline v0::plan {
namespace {

constexpr std::array<ScheduleEntry, 9> kSchedules = {{
    {"naive", "one micro-batch in the pipeline at a time", "", Chunks::One, naive},
    {"gpipe", "all micro-batches forward, then all of them back", "arXiv 1811.06965", Chunks::One,
     gpipe},
    {"1f1b", "one forward, one backward: few live activations", "arXiv 2007.01045", Chunks::One,
     one_f_one_b},
    {"interleaved-1f1b", "1F1B over several chunks a rank: a shorter bubble", "arXiv 2104.04473",
     Chunks::Any, interleaved},
    {"breadth-first", "all micro-batches through a chunk before the next chunk", "arXiv 2211.05953",
     Chunks::Any, breadth_first},
    {"zb-h1", "1F1B with weight gradients put off: a third of the bubble, its memory",
     "arXiv 2401.10241", Chunks::One, zb_h1},
    {"zb-h2", "no bubble for equal times, at twice the activations", "arXiv 2401.10241",
     Chunks::One, zb_h2},
    {"zb-v", "two chunks as a V: no bubble for equal times, 1F1B's memory", "arXiv 2405.15362",
     Chunks::Two, zb_v},
    {"dualpipe-v", "a V whose forward and backward passes run in pairs", "arXiv 2412.19437",
     Chunks::Two, dualpipe_v},
}};

constexpr int kMostPasses = 4'000'000;  // (stage, micro-batch) pairs

std::string text(int value) { return std::to_string(value); }

[[noreturn]] void refuse(std::string_view name, const std::string& why, const std::string& advice) {
  throw ConfigError(std::string(name) + ": " + why, {.operation = "schedule", .advice = advice});
}

int default_ranks(const ScheduleEntry& entry, int stages) {
  return entry.chunks != Chunks::One && stages % 2 == 0 ? stages / 2 : stages;
}

void check(const ScheduleEntry& entry, const ScheduleShape& shape) {
  if (shape.stages < 1 || shape.microbatches < 1 || shape.ranks < 1 ||
      shape.stages > kMostPasses / shape.microbatches) {
    refuse(entry.name,
           text(shape.stages) + " stages on " + text(shape.ranks) + " ranks, " +
               text(shape.microbatches) + " micro-batches",
           "Each is at least 1; stages x micro-batches go to " + text(kMostPasses) + ".");
  }
  const std::string there = text(shape.stages) + " stages on " + text(shape.ranks) +
                            (shape.ranks == 1 ? " rank" : " ranks");
  if (entry.chunks == Chunks::One && shape.stages != shape.ranks) {
    refuse(entry.name, there + ", but a rank holds one stage",
           "Use --ranks " + text(shape.stages) + ", or interleaved-1f1b.");
  }
  if (entry.chunks == Chunks::Two && shape.stages != 2 * shape.ranks) {
    refuse(entry.name,
           there + ", but a rank holds two stages: 2 x " + text(shape.ranks) + " = " +
               text(2 * shape.ranks),
           "Use --stages " + text(2 * shape.ranks) + " --ranks " + text(shape.ranks) + ".");
  }
  if (shape.stages % shape.ranks != 0) {
    refuse(entry.name,
           there + ", but each rank holds as many: " + text(shape.stages) + " = " +
               text(shape.ranks) + " x " + text(shape.stages / shape.ranks) + " + " +
               text(shape.stages % shape.ranks),
           "Use a number of ranks that divides the stages.");
  }
}

}  // namespace

std::span<const ScheduleEntry> schedules() { return kSchedules; }

const ScheduleEntry& schedule_named(std::string_view name) {
  const auto entry = std::find_if(kSchedules.begin(), kSchedules.end(),
                                  [&](const ScheduleEntry& one) { return one.name == name; });
  if (entry != kSchedules.end()) return *entry;
  std::string names;
  for (const ScheduleEntry& one : kSchedules) {
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  throw ConfigError("there is no schedule \"" + std::string(name) + "\"",
                    {.operation = "schedule", .advice = "There are " + names + "."});
}

Schedule make_schedule(std::string_view name, ScheduleShape shape) {
  const ScheduleEntry& entry = schedule_named(name);
  if (shape.ranks == 0) shape.ranks = default_ranks(entry, shape.stages);
  check(entry, shape);
  return entry.make(shape);
}

Schedule looped(const ScheduleShape& shape) {
  Schedule schedule;
  schedule.order.resize(static_cast<std::size_t>(shape.ranks));
  for (int stage = 0; stage < shape.stages; ++stage) {
    schedule.rank_of_stage.push_back(stage % shape.ranks);
  }
  return schedule;
}

Schedule v_shaped(const ScheduleShape& shape) {
  Schedule schedule;
  schedule.order.resize(static_cast<std::size_t>(shape.ranks));
  for (int stage = 0; stage < shape.stages; ++stage) {
    schedule.rank_of_stage.push_back(std::min(stage, shape.stages - 1 - stage));
  }
  return schedule;
}

Order& Order::add(ActionKind kind, int stage, int m) {
  if (m < microbatches_) {
    actions_.push_back({kind, stage, m});
  }
  return *this;
}

Order& Order::pair(int stage, int m, int back_stage, int back_m) {
  if (m >= microbatches_) return backward(back_stage, back_m);
  if (back_m >= microbatches_) return forward(stage, m);
  actions_.push_back({ActionKind::ForwardBackward, stage, m, back_stage, back_m});
  return *this;
}

}  // namespace trireme::inline v0::plan
