// The schedules that come with Trireme: for each, one file with the generator and the facts about
// the schedule, and one line in list.inc.
//
// Notation: p ranks, M micro-batches, v = stages / p chunks per rank. Pure functions.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/plan/schedule/schedule_check.h"

namespace trireme::inline v0::plan {

struct ScheduleShape {
  int ranks = 0, stages = 0, microbatches = 0;
  int chunks() const noexcept { return stages / ranks; }
};

enum class Chunks : std::uint8_t { One, Any, Two };  // stages a rank holds

struct ScheduleEntry {
  std::string_view name, about, source;  // source: "arXiv 1811.06965", or empty
  std::string_view bubble, live;         // formulas of the table in docs/schedules.md
  Chunks chunks = Chunks::One;
  Schedule (*make)(const ScheduleShape&) = nullptr;
  /// The most passes of a chunk whose activations a rank keeps in a long batch (`live` in other
  /// units); null: all passes.
  int (*most_passes)(const ScheduleShape&, int rank) = nullptr;
};

/// All schedules, the simplest first.
std::span<const ScheduleEntry> schedules();
/// ConfigError that lists the names if there is none of that name.
const ScheduleEntry& schedule_named(std::string_view name);
/// The stated bound on the live activations of a rank, in passes of a chunk.
int most_activations(const ScheduleEntry& entry, const ScheduleShape& shape, int rank);
/// Generates a schedule by name. ranks = 0 chooses `stages`, or half of it if a rank holds chunks.
/// ConfigError, with the arithmetic, if the schedule does not support the shape.
Schedule make_schedule(std::string_view name, ScheduleShape shape);

/// A verified schedule by name, or from a file (if the name has a dot or a slash). `chunks`: stages
/// per rank; 0: as few as the schedule supports (more than one for schedules with chunks).
/// ConfigError if a file is for another number of ranks, of stages (`chunks` > 0) or of
/// micro-batches (`microbatches` > 0), or contains an action that a training does not run. `peaks`,
/// if given: as verify() returns them.
Schedule load_schedule(const std::string& name, int ranks, int chunks, int microbatches,
                       std::vector<RankPeak>* peaks = nullptr);
/// Like load_schedule(), for a step of `microbatches`, which may be shorter than the others: if a
/// file has more, the additional micro-batches are left out.
Schedule load_schedule_of_step(const std::string& name, int ranks, int chunks, int microbatches);

/// The reason why a training refuses this schedule of a file (it can still be drawn); empty: none.
std::string why_not_trained(const Schedule& schedule);

/// With one chunk per rank, interleaved 1F1B is 1F1B, and breadth-first is GPipe.
Schedule one_f_one_b(const ScheduleShape& shape);
Schedule breadth_first(const ScheduleShape& shape);

/// Appends to one rank's order. Micro-batches from `microbatches` on are left out, so a pattern
/// that needs a longer batch also serves a short one: micro-batches do not wait for each other.
class Order {
 public:
  Order(std::vector<Action>& actions, int microbatches)
      : actions_(actions), microbatches_(microbatches) {}
  Order& forward(int stage, int m) { return add(ActionKind::Forward, stage, m); }
  Order& backward(int stage, int m) { return add(ActionKind::Backward, stage, m); }
  Order& input(int stage, int m) { return add(ActionKind::BackwardInput, stage, m); }
  Order& weight(int stage, int m) { return add(ActionKind::BackwardWeight, stage, m); }
  /// Forward (stage, m) and backward (back_stage, back_m) as one action, or the one that is not
  /// left out.
  Order& pair(int stage, int m, int back_stage, int back_m);

 private:
  Order& add(ActionKind kind, int stage, int m);

  std::vector<Action>& actions_;
  int microbatches_;
};

using WriteOrder = std::function<void(Order& order, int rank)>;
/// Stage s on rank s mod p: a line with one chunk, else a loop. `write` writes one rank's order.
Schedule looped_by(const ScheduleShape& shape, const WriteOrder& write);
/// Two chunks per rank: down the ranks and back up, so rank 0 holds the first and the last stage.
Schedule v_shaped_by(const ScheduleShape& shape, const WriteOrder& write);

}  // namespace trireme::inline v0::plan
