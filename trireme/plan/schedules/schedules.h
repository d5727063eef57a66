// The schedules that come with Trireme, one file each: what a rank computes, in which order.
//
// p ranks, M micro-batches, v = stages / p chunks a rank. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/plan/schedule.h"

namespace trireme {
inline namespace v0 {
namespace plan {

struct ScheduleShape {
  int ranks = 0, stages = 0, microbatches = 0;
  int chunks() const noexcept { return stages / ranks; }
};

enum class Chunks : std::uint8_t { One, Any, Two };  // stages a rank holds

struct ScheduleEntry {
  std::string_view name, about, source;
  Chunks chunks = Chunks::One;
  Schedule (*make)(const ScheduleShape&) = nullptr;
};

/// All of them, from the simplest on.
std::span<const ScheduleEntry> schedules();
/// ConfigError that lists the names.
const ScheduleEntry& schedule_named(std::string_view name);
/// By name; ranks = 0: as many as suit (stages, or half of them where a rank holds chunks).
/// ConfigError, with the arithmetic, where stages and ranks do not suit the schedule.
Schedule make_schedule(std::string_view name, ScheduleShape shape);

/// By name, or from a file (a dot or a slash is in its name), verified. `chunks`: stages a rank
/// holds, 0: as few as the schedule can have (more than one where it is for several). ConfigError
/// where a file is for another number of ranks, or (`microbatches` > 0) of micro-batches, or holds
/// an action that a training does not run.
Schedule load_schedule(const std::string& name, int ranks, int chunks, int microbatches);
/// The same for a step of `microbatches`, which may be a short one: of a file for more, the
/// micro-batches from there on are left out.
Schedule load_schedule_of_step(const std::string& name, int ranks, int chunks, int microbatches);

/// Why a training refuses this schedule of a file, which may be drawn; empty: it runs it.
std::string why_not_trained(const Schedule& schedule);

Schedule naive(const ScheduleShape& shape);
Schedule gpipe(const ScheduleShape& shape);
Schedule one_f_one_b(const ScheduleShape& shape);
Schedule interleaved(const ScheduleShape& shape);
Schedule breadth_first(const ScheduleShape& shape);
Schedule zb_h1(const ScheduleShape& shape);
Schedule zb_h2(const ScheduleShape& shape);
Schedule zb_v(const ScheduleShape& shape);
Schedule dualpipe_v(const ScheduleShape& shape);

/// Stage s on rank s mod p: with one chunk a straight line, with several a loop.
Schedule looped(const ScheduleShape& shape);
/// Two chunks: down the ranks and back up, so that rank 0 holds the first stage and the last.
Schedule v_shaped(const ScheduleShape& shape);
/// The same with orders: each rank's by a Writer(shape, rank, actions), in its three parts.
template <class Writer>
Schedule v_shaped_by(const ScheduleShape& shape) {
  Schedule schedule = v_shaped(shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Writer writer(shape, rank, schedule.order[static_cast<std::size_t>(rank)]);
    writer.warm_up();
    writer.steady();
    writer.cool_down();
  }
  return schedule;
}

/// Appends to one rank's order. Micro-batches from `microbatches` on are left out, so a pattern
/// that needs a longer batch to unfold serves a short one, too: micro-batches do not wait for each
/// other.
class Order {
 public:
  Order(std::vector<Action>& actions, int microbatches)
      : actions_(actions), microbatches_(microbatches) {}
  Order& forward(int stage, int m) { return add(ActionKind::Forward, stage, m); }
  Order& backward(int stage, int m) { return add(ActionKind::Backward, stage, m); }
  Order& input(int stage, int m) { return add(ActionKind::BackwardInput, stage, m); }
  Order& weight(int stage, int m) { return add(ActionKind::BackwardWeight, stage, m); }
  /// Forward (stage, m) and backward (back_stage, back_m) as one; the one of them that is left.
  Order& pair(int stage, int m, int back_stage, int back_m);

 private:
  Order& add(ActionKind kind, int stage, int m);

  std::vector<Action>& actions_;
  int microbatches_;
};

}  // namespace plan
}  // namespace v0
}  // namespace trireme
