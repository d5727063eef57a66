#include "trireme/plan/schedule/schedule_check.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/plan/schedule/schedule_walk.h"

namespace trireme::inline v0::plan {
namespace {

// The position of an action in its rank's order.
using Position = std::optional<std::size_t>;

// The positions of all actions of one micro-batch in one stage, by kind. An F+B counts as the F of
// one cell and the B of another.
struct Cell {
  std::array<Position, kActionKinds> at;
  Position& operator[](ActionKind kind) { return at[static_cast<std::size_t>(kind)]; }
};

class Inspector {
 public:
  explicit Inspector(const Schedule& schedule)
      : schedule_(schedule),
        microbatches_(schedule.microbatches()),
        cells_(schedule.rank_of_stage.size() * static_cast<std::size_t>(microbatches_)) {}

  ScheduleReport report() {
    collect();
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      for (int m = 0; m < microbatches_; ++m) check_cell(stage, m);
      check_ascending(stage);
    }
    if (report_.faults.empty()) check_deadlock();
    for (int rank = 0; report_.faults.empty() && rank < schedule_.ranks(); ++rank) measure(rank);
    return std::move(report_);
  }

 private:
  Cell& cell(int stage, int m) {
    return cells_[static_cast<std::size_t>(stage * microbatches_ + m)];
  }
  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<std::size_t>(stage)]; }
  const std::vector<Action>& order_of(int rank) const {
    return schedule_.order[static_cast<std::size_t>(rank)];
  }
  // One wrong line can cause hundreds of faults; the first few suffice.
  void fault(const std::string& what, const Mark& mark) {
    if (report_.faults.size() < 8) report_.faults.push_back(what + grid_text(schedule_, mark));
  }

  void collect() {
    for (int rank = 0; rank < schedule_.ranks(); ++rank)
      for (std::size_t i = 0; i < order_of(rank).size(); ++i)
        each_pass(order_of(rank)[i], [&](const Action& pass) { put(rank, i, pass); });
  }

  void put(int rank, std::size_t position, const Action& pass) {
    if (pass.stage >= schedule_.stages() || rank_of(pass.stage) != rank) {
      return fault(text_of(pass) + " is on rank " + std::to_string(rank) + ", which has no stage " +
                       std::to_string(pass.stage),
                   {rank, position});
    }
    Position& at = cell(pass.stage, pass.microbatch)[pass.kind];
    if (at) return fault(text_of(pass) + " occurs twice", {rank, position});
    at = position;
  }

  // The expected place of a missing action: after the same action of the previous micro-batch.
  Mark missing(ActionKind kind, int stage, int m) {
    Mark mark{rank_of(stage), order_of(rank_of(stage)).size(), text_of(Action{kind, stage, m})};
    if (m > 0 && cell(stage, m - 1)[kind]) {
      mark.position = *cell(stage, m - 1)[kind] + 1;
    } else if (m + 1 < microbatches_ && cell(stage, m + 1)[kind]) {
      mark.position = *cell(stage, m + 1)[kind];
    }
    return mark;
  }
  void require(ActionKind kind, int stage, int m) {
    if (cell(stage, m)[kind]) return;
    const Mark mark = missing(kind, stage, m);
    fault(mark.missing + " is missing", mark);
  }

  // Requires `first` before `then` if both exist.
  void require_order(ActionKind first, ActionKind then, int stage, int m) {
    const Position &one = cell(stage, m)[first], &other = cell(stage, m)[then];
    if (!one || !other || *one < *other) return;
    fault(text_of(Action{then, stage, m}) + " stands before " + text_of(Action{first, stage, m}),
          {rank_of(stage), *other});
  }

  void check_cell(int stage, int m) {
    using enum ActionKind;
    Cell& here = cell(stage, m);
    require(Forward, stage, m);
    if (here[Backward]) {
      for (ActionKind half : {BackwardInput, BackwardWeight}) {
        if (!here[half]) continue;
        fault(text_of(Action{Backward, stage, m}) + " already computes " +
                  text_of(Action{half, stage, m}),
              {rank_of(stage), *here[half]});
      }
    } else if (here[BackwardInput] || here[BackwardWeight]) {
      require(BackwardInput, stage, m);
      require(BackwardWeight, stage, m);
    } else {
      require(Backward, stage, m);
    }
    for (ActionKind back : {Backward, BackwardInput, Recompute})
      require_order(Forward, back, stage, m);
    for (ActionKind back : {Backward, BackwardInput}) require_order(Recompute, back, stage, m);
    require_order(BackwardInput, BackwardWeight, stage, m);
    check_transfers(stage, m);
  }

  // With explicit transfers: values that cross ranks are sent once made and received before use.
  void check_transfers(int stage, int m) {
    using enum ActionKind;
    Cell& here = cell(stage, m);
    const auto crosses = [&](int to) {
      return transfers_ && to >= 0 && to < schedule_.stages() && rank_of(to) != rank_of(stage);
    };
    const auto check = [&](ActionKind kind, int to) {
      if (crosses(to)) return require(kind, stage, m);
      if (!here[kind]) return;
      fault(text_of(Action{kind, stage, m}) + " needs no transfer: both stages are on one rank",
            {rank_of(stage), *here[kind]});
    };
    check(RecvActivation, stage - 1);
    check(SendActivation, stage + 1);
    check(RecvGradient, stage + 1);
    check(SendGradient, stage - 1);
    require_order(RecvActivation, Forward, stage, m);
    require_order(Forward, SendActivation, stage, m);
    for (ActionKind back : {Backward, BackwardInput}) {
      require_order(RecvGradient, back, stage, m);
      require_order(back, SendGradient, stage, m);
    }
  }

  void check_ascending(int stage) {
    for (int m = 1; m < microbatches_; ++m) {
      const auto adds = [&](int of) {
        const Position& whole = cell(stage, of)[ActionKind::Backward];
        return whole ? whole : cell(stage, of)[ActionKind::BackwardWeight];
      };
      if (!adds(m) || !adds(m - 1) || *adds(m - 1) < *adds(m)) continue;
      fault("stage " + std::to_string(stage) + " adds the weight gradient of micro-batch " +
                std::to_string(m) + " before that of " + std::to_string(m - 1) +
                ": the sum needs ascending order",
            {rank_of(stage), *adds(m)});
    }
  }

  // Reports the cycle of ranks that wait for each other.
  void check_deadlock() {
    const auto stuck = walk(schedule_, [](int, std::size_t) {});
    if (stuck.empty()) return;
    std::map<int, const Stuck*> of_rank;
    for (const Stuck& one : stuck) of_rank[one.rank] = &one;
    std::string text = "deadlock:";
    std::map<int, bool> seen;
    const Stuck* one = of_rank.begin()->second;
    while (!seen[one->rank]) {
      seen[one->rank] = true;
      const int maker = rank_of(one->value.stage);
      text += "\n  rank " + std::to_string(one->rank) + ", at " +
              text_of(order_of(one->rank)[one->position]) + ", waits for " + text_of(one->value) +
              ", which rank " + std::to_string(maker) + " does later";
      if (!of_rank.contains(maker)) break;
      one = of_rank[maker];
    }
    fault(text, {stuck.front().rank, stuck.front().position});
  }

  void measure(int rank) {
    using enum ActionKind;
    RankPeak& peak = report_.peaks.emplace_back();
    int alive = 0, for_weights = 0, inputs = 0;
    const auto forward = [&](int stage, int m) { ++(cell(stage, m)[Recompute] ? inputs : alive); };
    for (const Action& action : order_of(rank)) {
      if (goes_forward(action.kind)) forward(action.stage, action.microbatch);
      if (action.kind == Recompute) ++alive, --inputs;
      peak.activations = std::max(peak.activations, alive);
      peak.inputs = std::max(peak.inputs, inputs);
      if (action.kind == BackwardInput) ++for_weights;
      peak.for_weights = std::max(peak.for_weights, for_weights);
      if (action.kind == BackwardWeight) --for_weights;
      if (adds_gradient(action.kind)) --alive;
    }
  }

  const Schedule& schedule_;
  int microbatches_;
  bool transfers_ = has_transfers(schedule_);
  std::vector<Cell> cells_;
  ScheduleReport report_;
};

}  // namespace

ScheduleReport inspect(const Schedule& schedule) {
  // A typing error like F0.9999 must not cost gigabytes: every cell needs at least one action.
  std::size_t actions = 0;
  for (const auto& order : schedule.order) actions += order.size();
  const std::size_t microbatches = static_cast<std::size_t>(schedule.microbatches());
  const std::size_t cells = schedule.rank_of_stage.size() * microbatches;
  if (cells > 10'000 && actions < cells) {
    return {{std::to_string(schedule.stages()) + " stages times " + std::to_string(microbatches) +
             " micro-batches need " + std::to_string(cells) + " forward passes, but there are " +
             std::to_string(actions) + " actions in all"},
            {}};
  }
  return Inspector(schedule).report();
}

std::vector<RankPeak> verify(const Schedule& schedule, const std::string& where) {
  ScheduleReport report = inspect(schedule);
  if (report.faults.empty()) return std::move(report.peaks);
  throw ConfigError(where + " cannot run",
                    {.operation = "schedule", .advice = report.faults.front()});
}

}  // namespace trireme::inline v0::plan
