#include "trireme/plan/schedule/generators/schedules.h"

#include <algorithm>
#include <array>

#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"

namespace trireme::inline v0::plan {

#define TRIREME_SCHEDULE(name) ScheduleEntry name##_entry();
#include "trireme/plan/schedule/generators/list.inc"
#undef TRIREME_SCHEDULE

namespace {

constexpr int kMostPasses = 4'000'000;  // (stage, micro-batch) pairs

std::string text(int value) { return std::to_string(value); }

[[noreturn]] void refuse_named(std::string_view name, const std::string& why,
                               const std::string& advice) {
  refuse("schedule", std::string(name) + ": " + why, advice);
}

int default_ranks(const ScheduleEntry& entry, int stages) {
  return entry.chunks != Chunks::One && stages % 2 == 0 ? stages / 2 : stages;
}

// The first schedule that lets a rank hold any number of stages.
std::string one_with_chunks() {
  const auto all = schedules();
  const auto found = std::find_if(
      all.begin(), all.end(), [](const ScheduleEntry& one) { return one.chunks == Chunks::Any; });
  return std::string(found->name);
}

void check(const ScheduleEntry& entry, const ScheduleShape& shape) {
  if (shape.stages < 1 || shape.microbatches < 1 || shape.ranks < 1 ||
      shape.stages > kMostPasses / shape.microbatches) {
    refuse_named(entry.name,
                 text(shape.stages) + " stages on " + text(shape.ranks) + " ranks, " +
                     text(shape.microbatches) + " micro-batches",
                 "Each is at least 1; stages x micro-batches go to " + text(kMostPasses) + ".");
  }
  const std::string there = text(shape.stages) + " stages on " + text(shape.ranks) +
                            (shape.ranks == 1 ? " rank" : " ranks");
  if (entry.chunks == Chunks::One && shape.stages != shape.ranks) {
    refuse_named(entry.name, there + ", but a rank holds one stage",
                 "Use --ranks " + text(shape.stages) + ", or " + one_with_chunks() + ".");
  }
  if (entry.chunks == Chunks::Two && shape.stages != 2 * shape.ranks) {
    refuse_named(entry.name,
                 there + ", but a rank holds two stages: 2 x " + text(shape.ranks) + " = " +
                     text(2 * shape.ranks),
                 "Use --stages " + text(2 * shape.ranks) + " --ranks " + text(shape.ranks) + ".");
  }
  if (shape.stages % shape.ranks != 0) {
    refuse_named(entry.name,
                 there + ", but each rank holds as many: " + text(shape.stages) + " = " +
                     text(shape.ranks) + " x " + text(shape.stages / shape.ranks) + " + " +
                     text(shape.stages % shape.ranks),
                 "Use a number of ranks that divides the stages.");
  }
}

// Stage s is on rank rank_of(s).
template <class RankOf>
Schedule written(const ScheduleShape& shape, const WriteOrder& write, RankOf rank_of) {
  Schedule schedule;
  schedule.order.resize(static_cast<std::size_t>(shape.ranks));
  for (int stage = 0; stage < shape.stages; ++stage)
    schedule.rank_of_stage.push_back(rank_of(stage));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Order order(schedule.order[static_cast<std::size_t>(rank)], shape.microbatches);
    write(order, rank);
  }
  return schedule;
}

}  // namespace

std::span<const ScheduleEntry> schedules() {
  static const std::array all = {
#define TRIREME_SCHEDULE(name) name##_entry(),
#include "trireme/plan/schedule/generators/list.inc"
#undef TRIREME_SCHEDULE
  };
  return all;
}

const ScheduleEntry& schedule_named(std::string_view name) {
  for (const ScheduleEntry& one : schedules())
    if (one.name == name) return one;
  refuse("schedule", "there is no schedule \"" + std::string(name) + "\"",
         "There are " + joined(schedules(), &ScheduleEntry::name) + ".");
}

int most_activations(const ScheduleEntry& entry, const ScheduleShape& shape, int rank) {
  const int all = shape.chunks() * shape.microbatches;
  return entry.most_passes ? std::min(all, entry.most_passes(shape, rank)) : all;
}

Schedule make_schedule(std::string_view name, ScheduleShape shape) {
  const ScheduleEntry& entry = schedule_named(name);
  if (shape.ranks == 0) shape.ranks = default_ranks(entry, shape.stages);
  check(entry, shape);
  return entry.make(shape);
}

Schedule looped_by(const ScheduleShape& shape, const WriteOrder& write) {
  return written(shape, write, [&](int stage) { return stage % shape.ranks; });
}

Schedule v_shaped_by(const ScheduleShape& shape, const WriteOrder& write) {
  return written(shape, write,
                 [&](int stage) { return std::min(stage, shape.stages - 1 - stage); });
}

Order& Order::add(ActionKind kind, int stage, int m) {
  if (m < microbatches_) actions_.push_back({kind, stage, m});
  return *this;
}

Order& Order::pair(int stage, int m, int back_stage, int back_m) {
  if (m >= microbatches_) return backward(back_stage, back_m);
  if (back_m >= microbatches_) return forward(stage, m);
  actions_.push_back({ActionKind::ForwardBackward, stage, m, back_stage, back_m});
  return *this;
}

}  // namespace trireme::inline v0::plan
