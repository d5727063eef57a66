// Properties of pipeline schedules: for every name and shape, each pass occurs once and in an order
// that can run, in the stated memory; the check accepts exactly what a simple reference can run.
#include "trireme/plan/schedule/generators/schedules.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <tuple>

#include "tests/property/draw.h"
#include "trireme/plan/open_sums.h"
#include "trireme/plan/schedule/schedule_check.h"
#include "trireme/plan/schedule/schedule_transfers.h"
#include "trireme/plan/schedule/schedule_walk.h"

namespace trireme {
namespace {

using namespace plan;

struct DrawnSchedule {
  std::string name;
  ScheduleShape shape;
  Schedule schedule() const { return make_schedule(name, shape); }
};

DrawnSchedule draw_schedule(int most_ranks, int most_microbatches) {
  std::vector<std::string> names;
  for (const ScheduleEntry& entry : schedules()) names.emplace_back(entry.name);
  const std::string name = *rc::gen::elementOf(names).as("schedule");
  const int ranks = *in_range(1, most_ranks + 1).as("ranks");
  int chunks = schedule_named(name).chunks == Chunks::Two ? 2 : 1;
  if (schedule_named(name).chunks == Chunks::Any) chunks = *in_range(1, 6).as("chunks");
  return {name, {ranks, ranks * chunks, *in_range(1, most_microbatches + 1).as("M")}};
}

std::vector<Action>& draw_order(Schedule& schedule) {
  return schedule.order[*in_range<std::size_t>(0, schedule.order.size()).as("rank")];
}

// Runs a schedule by the rules of docs/schedules.md. B counts as I and W.
class Reference {
 public:
  explicit Reference(const Schedule& schedule)
      : schedule_(schedule), transfers_(has_transfers(schedule)) {}

  // True if every pass occurs once, on the rank of its stage, after all that it needs.
  bool runs() {
    std::vector<std::size_t> next(schedule_.order.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next.size(); ++rank)
        for (; next[rank] < schedule_.order[rank].size(); ++next[rank], moved = true)
          if (!run(schedule_.order[rank][next[rank]], static_cast<int>(rank))) break;
    }
    for (std::size_t rank = 0; rank < next.size(); ++rank)
      if (next[rank] < schedule_.order[rank].size()) return false;
    const auto passes = std::count_if(done_.begin(), done_.end(),
                                      [](const auto& one) { return is_pass(std::get<0>(one)); });
    return passes == 3 * schedule_.stages() * schedule_.microbatches();
  }

 private:
  using enum ActionKind;

  bool run(const Action& a, int rank) {
    std::vector<Action> parts{{a.kind, a.stage, a.microbatch}};
    if (a.kind == ForwardBackward)
      parts = {{Forward, a.stage, a.microbatch},
               {Backward, a.backward_stage, a.backward_microbatch}};
    if (parts.back().kind == Backward) {
      parts.back().kind = BackwardInput;
      parts.push_back({BackwardWeight, parts.back().stage, parts.back().microbatch});
    }
    // A W needs the I that is part of the same action, so it looks last.
    for (const bool weight : {false, true}) {
      for (const Action& part : parts)
        if ((part.kind == BackwardWeight) == weight && !ready(part, rank)) return false;
      for (const Action& part : parts)
        if ((part.kind == BackwardWeight) == weight)
          if (!done_.insert({part.kind, part.stage, part.microbatch}).second) return false;
    }
    return true;
  }

  bool done(ActionKind kind, int stage, int m) const { return done_.contains({kind, stage, m}); }

  bool ready(const Action& part, int rank) const {
    const int s = part.stage, m = part.microbatch, last = schedule_.stages() - 1;
    const auto rank_of = [&](int stage) { return schedule_.rank_of_stage[std::size_t(stage)]; };
    const auto from = [&](int other, ActionKind receive, ActionKind make) {
      const bool sent = transfers_ && rank_of(other) != rank_of(s);
      return sent ? done(receive, s, m) : done(make, other, m);
    };
    if (rank_of(s) != rank) return false;
    switch (part.kind) {
      case Forward:
        return s == 0 || from(s - 1, RecvActivation, Forward);
      case BackwardInput:
        return done(Forward, s, m) && (s == last || from(s + 1, RecvGradient, BackwardInput));
      case BackwardWeight:  // ascending, for the tree sum
        return done(BackwardInput, s, m) && (m == 0 || done(BackwardWeight, s, m - 1));
      case SendActivation:
        return done(Forward, s, m);
      case RecvActivation:
        return done(SendActivation, s - 1, m);
      case SendGradient:
        return done(BackwardInput, s, m);
      default:
        return done(SendGradient, s + 1, m);
    }
  }

  const Schedule& schedule_;
  const bool transfers_;
  std::set<std::tuple<ActionKind, int, int>> done_;
};

RC_GTEST_PROP(ScheduleProperty, EveryPassOccursOnceInAnOrderThatRuns, ()) {
  const DrawnSchedule drawn = draw_schedule(10, 32);
  const Schedule schedule = drawn.schedule();
  RC_ASSERT((std::array{schedule.ranks(), schedule.stages(), schedule.microbatches()}) ==
            (std::array{drawn.shape.ranks, drawn.shape.stages, drawn.shape.microbatches}));
  RC_ASSERT(Reference(schedule).runs());
  RC_ASSERT(Reference(with_transfers(schedule)).runs());
  for (const Schedule& form :
       {schedule, with_transfers(schedule), with_transfers(with_recompute(schedule))}) {
    RC_ASSERT(inspect(form).faults == std::vector<std::string>{});
    RC_ASSERT(parse_schedule(text_of(form)) == form);
  }
}

RC_GTEST_PROP(ScheduleProperty, LiveActivationsAreCountedAndKeepToTheStatedBound, ()) {
  const DrawnSchedule drawn = draw_schedule(10, 32);
  const Schedule schedule = drawn.schedule();
  const auto peaks = verify(schedule, drawn.name);
  const auto log2_up = std::bit_width(static_cast<unsigned>(drawn.shape.microbatches - 1));
  for (int rank = 0; rank < drawn.shape.ranks; ++rank) {
    int alive = 0, most = 0;
    for (const Action& action : schedule.order[static_cast<std::size_t>(rank)]) {
      most = std::max(most, alive += goes_forward(action.kind) ? 1 : 0);
      alive -= adds_gradient(action.kind) ? 1 : 0;
    }
    const RankPeak& peak = peaks[static_cast<std::size_t>(rank)];
    RC_ASSERT(alive == 0);
    RC_ASSERT(peak.activations == most);
    RC_ASSERT(most <= most_activations(schedule_named(drawn.name), drawn.shape, rank));
    RC_ASSERT(open_sums(schedule.microbatches(), 1) == std::max(1, static_cast<int>(log2_up)));
  }
}

// So an action that is missing, doubled or swapped with one that it depends on is refused.
RC_GTEST_PROP(ScheduleProperty, TheCheckAcceptsAChangeIfAndOnlyIfItCanRun, ()) {
  Schedule schedule = draw_schedule(4, 6).schedule();
  if (*rc::gen::arbitrary<bool>().as("transfers")) schedule = with_transfers(schedule);
  std::vector<Action>& order = draw_order(schedule);
  const auto one = order.begin() + *in_range<std::ptrdiff_t>(0, std::ssize(order)).as("one");
  const auto other = order.begin() + *in_range<std::ptrdiff_t>(0, std::ssize(order)).as("other");
  const int change = *in_range(0, 4).as("0: erase, 1: double, else swap");
  if (change == 0) order.erase(one);
  if (change == 1) order.insert(other, Action(*one));
  if (change > 1) std::swap(*one, *other);
  const bool fine = inspect(schedule).faults.empty();
  RC_ASSERT(fine == Reference(schedule).runs());
  RC_ASSERT(!fine || change > 1);
}

RC_GTEST_PROP(ScheduleProperty, AnyActionsRoundTripThroughText, ()) {
  Schedule schedule = draw_schedule(4, 4).schedule();
  for (int extra = *in_range(0, 10).as("extra actions"); extra > 0; --extra) {
    std::vector<Action>& order = draw_order(schedule);
    const auto draw_stage = [&] { return (*rc::gen::elementOf(order)).stage; };
    Action action{static_cast<ActionKind>(*in_range(0, kActionKinds).as("kind")), draw_stage(),
                  *in_range(0, 10'000)};
    if (action.kind == ActionKind::ForwardBackward) {
      action.backward_stage = draw_stage();
      action.backward_microbatch = *in_range(0, 10'000);
    }
    order.insert(order.begin() + *in_range<std::ptrdiff_t>(0, std::ssize(order)), action);
  }
  RC_ASSERT(parse_schedule(text_of(schedule)) == schedule);
}

}  // namespace
}  // namespace trireme
