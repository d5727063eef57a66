// Every schedule over the simulated network, with passes that only record where a parcel has been.
// Passes take virtual time, so the timeline must be the simulator's.
#include "trireme/pipeline/executor.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "trireme/base/error.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/plan/schedule/pipeline_simulator.h"
#include "trireme/plan/schedule/schedule_transfers.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::parallel::executor_test {
namespace {

using plan::Action;
using plan::ActionKind;
using ::testing::HasSubstr;
using testing::RankContext;
using testing::run_ranks;

constexpr Duration kPass = std::chrono::milliseconds(10);

using Place = std::pair<int, std::uint32_t>;  // stage, micro-batch

// Forward: "path" [stages so far, micro-batch, ...] as doubles, and "marks" [micro-batch] as int64,
// which has no gradient. Back: the stages that the gradient passed through.
class Traces : public Passes {
 public:
  Traces(Waiter& waiter, int stages) : waiter_(waiter), stages_(stages) {}

  Parcel forward(int stage, std::uint32_t micro, Parcel in) override {
    waiter_.sleep(kPass);
    ran.push_back({ActionKind::Forward, stage, static_cast<int>(micro)});
    if (fails == Place{stage, micro}) return {.failed = true};
    std::vector<double> path = {1.0 * micro};
    if (stage > 0) {
      EXPECT_EQ(in.counts, (std::vector<std::size_t>{1, 1}));
      EXPECT_EQ(in.tensors.at(1).scalar_type(), at::kLong);
      EXPECT_EQ(in.tensors[1].item<std::int64_t>(), micro);
      path = values(in.tensors[0]);
    }
    path.push_back(stage);
    arrived.emplace(Place{stage, micro}, path);
    if (stage + 1 == stages_) return {};
    if (widens == Place{stage, micro}) path.push_back(-1);
    return parcel({{at::tensor(path, at::kDouble), true},
                   {at::full({1}, static_cast<std::int64_t>(micro), at::kLong), false}});
  }
  Parcel backward(int stage, std::uint32_t micro, Parcel gradients) override {
    waiter_.sleep(kPass);
    ran.push_back({ActionKind::Backward, stage, static_cast<int>(micro)});
    return back(stage, micro, std::move(gradients));
  }
  Parcel backward_input(int stage, std::uint32_t micro, Parcel gradients) override {
    waiter_.sleep(kPass);
    ran.push_back({ActionKind::BackwardInput, stage, static_cast<int>(micro)});
    return back(stage, micro, std::move(gradients));
  }
  void backward_weight(int stage, std::uint32_t micro) override {
    waiter_.sleep(kPass);
    ran.push_back({ActionKind::BackwardWeight, stage, static_cast<int>(micro)});
  }
  void end_pass(ActionKind pass, int stage, std::uint32_t micro) override {
    ended.push_back({pass, stage, static_cast<int>(micro)});
  }
  void refuse(const std::exception_ptr& error) override {
    refusals.push_back(describe(error).sentence);
  }

  std::vector<Action> ran, ended;
  std::map<Place, std::vector<double>> arrived, returned;
  std::set<Place> failed_back;
  std::vector<std::string> refusals;
  Place fails = {-1, 0}, widens = {-1, 0};

 private:
  static std::vector<double> values(const at::Tensor& tensor) {
    const auto* data = tensor.const_data_ptr<double>();
    return {data, data + tensor.numel()};
  }
  static Parcel parcel(const std::vector<std::pair<at::Tensor, bool>>& tensors) {
    Parcel parcel;
    for (const auto& [tensor, carries] : tensors) {
      parcel.counts.push_back(1);
      parcel.layouts.push_back(layout_of(tensor, carries));
      parcel.tensors.push_back(tensor);
    }
    return parcel;
  }
  Parcel back(int stage, std::uint32_t micro, Parcel gradients) {
    if (gradients.failed || !arrived.contains({stage, micro})) {
      failed_back.insert({stage, micro});
      return {.failed = true};
    }
    std::vector<double> path = {1.0 * micro};
    if (stage + 1 < stages_) {
      path = values(gradients.tensors.at(0));
      EXPECT_FALSE(gradients.tensors.at(1).defined());
    }
    path.push_back(stage);
    returned.emplace(Place{stage, micro}, path);
    Parcel out = parcel({{at::tensor(path, at::kDouble), true}, {at::empty({1}), true}});
    out.tensors[1].reset();
    return out;
  }

  Waiter& waiter_;
  int stages_;
};

Executor executor_of(const RankContext& rank, const plan::Schedule& schedule,
                     std::vector<plan::TimedAction>* times = nullptr) {
  ExecutorOptions options{.pipeline = rank.world.get(), .rank_of_stage = schedule.rank_of_stage};
  options.values_after.assign(schedule.rank_of_stage.size() - 1, {"path", "marks"});
  options.waiter = rank.waiter;
  if (times != nullptr)
    options.on_pass = [times](const Action& action, TimePoint begin, TimePoint end) {
      const auto seconds = [](TimePoint time) {
        return std::chrono::duration<double>(time.time_since_epoch()).count();
      };
      times->push_back({action, seconds(begin), seconds(end)});
    };
  return Executor(options);
}

void end_step(Executor& executor, bool good) {
  executor.sent().wait();
  executor.settle(good);
}

struct Shape {
  std::string name;
  int ranks = 1, stages = 1, microbatches = 1;
  plan::Schedule make() const {
    return plan::with_transfers(plan::make_schedule(
        name, {.ranks = ranks, .stages = stages, .microbatches = microbatches}));
  }
  std::string text() const {
    return name + " of " + std::to_string(stages) + " stages on " + std::to_string(ranks) +
           " ranks, " + std::to_string(microbatches) + " micro-batches";
  }
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const plan::ScheduleEntry& entry : plan::schedules()) {
    const std::string name(entry.name);
    for (const int ranks : {2, 3, 4, 8}) {
      const int chunks = entry.chunks == plan::Chunks::One ? 1 : 2;
      all.push_back({name, ranks, ranks * chunks, ranks == 3 ? 6 : 2 * ranks});
    }
    if (entry.chunks == plan::Chunks::Any) all.push_back({name, 2, 6, 4});
  }
  all.push_back({"1f1b", 5, 5, 2});  // fewer micro-batches than stages
  return all;
}

// The path of micro-batch m when it leaves stage `stage`, forward or back.
std::vector<double> way(int stages, int stage, std::uint32_t micro, bool forward) {
  std::vector<double> path = {1.0 * micro};
  if (forward)
    for (int s = 0; s <= stage; ++s) path.push_back(s);
  else
    for (int s = stages - 1; s >= stage; --s) path.push_back(s);
  return path;
}

void expect_complete(const Shape& shape, const plan::Schedule& schedule, int rank,
                     const Traces& traces) {
  for (int stage = 0; stage < shape.stages; ++stage) {
    if (schedule.rank_of_stage[static_cast<std::size_t>(stage)] != rank) continue;
    for (std::uint32_t m = 0; m < static_cast<std::uint32_t>(shape.microbatches); ++m) {
      EXPECT_EQ(traces.arrived.at({stage, m}), way(shape.stages, stage, m, true));
      EXPECT_EQ(traces.returned.at({stage, m}), way(shape.stages, stage, m, false));
    }
  }
  EXPECT_TRUE(traces.failed_back.empty());
  EXPECT_TRUE(traces.refusals.empty());
}

// A rank's passes in its order; a ForwardBackward counts as two.
std::vector<Action> passes_of(const std::vector<Action>& order) {
  std::vector<Action> passes;
  for (const Action& action : order) {
    if (!plan::is_pass(action.kind)) continue;
    if (action.kind != ActionKind::ForwardBackward) {
      passes.push_back(action);
      continue;
    }
    passes.push_back({ActionKind::Forward, action.stage, action.microbatch});
    passes.push_back({ActionKind::Backward, action.backward_stage, action.backward_microbatch});
  }
  return passes;
}

TEST(Executor, RunsEveryScheduleAsItIsPrinted) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.text());
    const plan::Schedule schedule = shape.make();
    const std::vector<std::string> keys(static_cast<std::size_t>(shape.microbatches), "train");
    run_ranks(shape.ranks, [&](RankContext& rank) {
      Executor executor = executor_of(rank, schedule);
      for (int step = 0; step < 2; ++step) {
        Traces traces(*rank.waiter, shape.stages);
        executor.run(schedule, keys, traces);
        end_step(executor, true);
        EXPECT_EQ(traces.ran, passes_of(schedule.order[static_cast<std::size_t>(rank.rank)]));
        expect_complete(shape, schedule, rank.rank, traces);
      }
    });
  }
}

// All passes take 10 ms; a hop takes about 20 us. From the second step on receives are posted
// ahead, and a rank begins each pass at the simulator's time.
TEST(Executor, KeepsTheSimulatorsTimes) {
  for (const Shape& shape : {Shape{"gpipe", 4, 4, 8},
                             {"1f1b", 8, 8, 16},
                             {"interleaved-1f1b", 2, 4, 4},
                             {"zb-h1", 4, 4, 8},
                             {"zb-h2", 4, 4, 12},
                             {"zb-v", 4, 8, 8}}) {
    SCOPED_TRACE(shape.text());
    const plan::Schedule schedule = shape.make();
    const double pass = to_seconds(kPass);
    // A whole backward pass sleeps as long as a forward pass here.
    const bool split = shape.name.starts_with("zb");
    const plan::Timeline expected =
        plan::simulate(schedule, {{{pass, split ? pass : pass / 2, split ? pass : pass / 2}}, 0});
    const std::vector<std::string> keys(static_cast<std::size_t>(shape.microbatches), "train");
    std::vector<std::vector<plan::TimedAction>> times(static_cast<std::size_t>(shape.ranks));
    run_ranks(shape.ranks, [&](RankContext& rank) {
      auto& mine = times[static_cast<std::size_t>(rank.rank)];
      Executor executor = executor_of(rank, schedule, &mine);
      for (int step = 0; step < 2; ++step) {
        mine.clear();
        rank.world->barrier().wait();
        Traces traces(*rank.waiter, shape.stages);
        executor.run(schedule, keys, traces);
        end_step(executor, true);
      }
    });
    const double origin = times[schedule.rank_of_stage[0]].front().begin;
    for (std::size_t rank = 0; rank < times.size(); ++rank) {
      ASSERT_EQ(times[rank].size(), expected.ranks[rank].size());
      for (std::size_t i = 0; i < times[rank].size(); ++i) {
        const plan::TimedAction &got = times[rank][i], &wanted = expected.ranks[rank][i];
        EXPECT_EQ(got.action, wanted.action);
        EXPECT_NEAR(got.begin - origin, wanted.begin, 0.2 * pass) << plan::text_of(got.action);
      }
    }
  }
}

// A failed micro-batch fails in all later stages and in all of its backward passes. The others go
// on, every rank comes to its end, and the next step is not affected.
TEST(Executor, AFailedPassReachesAllWhoWaitForIt) {
  for (const Shape& shape : {Shape{"gpipe", 4, 4, 4}, {"1f1b", 4, 4, 8}, {"zb-v", 2, 4, 4}}) {
    for (const int failing_step : {0, 1}) {
      const Place failing{1, 2};
      SCOPED_TRACE(shape.text() + ", step " + std::to_string(failing_step));
      const plan::Schedule schedule = shape.make();
      const std::vector<std::string> keys(static_cast<std::size_t>(shape.microbatches), "train");
      std::set<Place> arrived, failed_back;
      run_ranks(shape.ranks, [&](RankContext& rank) {
        Executor executor = executor_of(rank, schedule);
        for (int step = 0; step < 3; ++step) {
          Traces traces(*rank.waiter, shape.stages);
          if (step == failing_step) traces.fails = failing;
          executor.run(schedule, keys, traces);
          end_step(executor, step != failing_step);
          if (step != failing_step) {
            expect_complete(shape, schedule, rank.rank, traces);
            continue;
          }
          for (const auto& [place, path] : traces.arrived) arrived.insert(place);
          failed_back.insert(traces.failed_back.begin(), traces.failed_back.end());
        }
      });
      for (int stage = 0; stage < shape.stages; ++stage)
        for (std::uint32_t m = 0; m < static_cast<std::uint32_t>(shape.microbatches); ++m) {
          EXPECT_EQ(arrived.contains({stage, m}), m != 2 || stage == 0) << stage << "." << m;
          EXPECT_EQ(failed_back.contains({stage, m}), m == 2) << stage << "." << m;
        }
    }
  }
}

TEST(Executor, AParcelOfAnotherShapeIsRefusedBySenderAndFailsForTheOthers) {
  const Shape shape{"1f1b", 3, 3, 4};
  const plan::Schedule schedule = shape.make();
  const std::vector<std::string> keys(4, "train");
  run_ranks(3, [&](RankContext& rank) {
    Executor executor = executor_of(rank, schedule);
    for (const int step : {0, 1}) {
      Traces traces(*rank.waiter, 3);
      if (step == 1) traces.widens = {0, 3};
      executor.run(schedule, keys, traces);
      end_step(executor, step == 0);
      if (step == 0) continue;
      EXPECT_EQ(traces.refusals.size(), rank.rank == 0 ? 1u : 0u);
      if (rank.rank == 0) {
        EXPECT_THAT(
            traces.refusals.at(0),
            HasSubstr("stage 0 gives \"path\" as F64 [3], but the agreed layout is F64 [2]"));
      }
      EXPECT_EQ(traces.arrived.contains({rank.rank, 3}), rank.rank == 0);
      EXPECT_TRUE(traces.failed_back.contains({rank.rank, 3}));
      EXPECT_TRUE(traces.returned.contains({rank.rank, 2}));
    }
  });
}

TEST(Executor, ARankThatIsGoneEndsTheOthers) {
  struct Gone : Traces {
    using Traces::Traces;
    Parcel forward(int stage, std::uint32_t micro, Parcel in) override {
      if (stage == 1 && micro == 1) throw std::runtime_error("the process is gone");
      return Traces::forward(stage, micro, std::move(in));
    }
  };
  const Shape shape{"1f1b", 4, 4, 8};
  const plan::Schedule schedule = shape.make();
  const std::vector<std::string> keys(8, "train");
  int ended = 0;
  run_ranks(4, [&](RankContext& rank) {
    const TimePoint begin = rank.waiter->now();
    Executor executor = executor_of(rank, schedule);
    Gone passes(*rank.waiter, 4);
    try {
      executor.run(schedule, keys, passes);
      executor.sent().wait();
      ADD_FAILURE() << "rank " << rank.rank << " came to its end";
    } catch (const PeerLost&) {
      EXPECT_NE(rank.rank, 1);
      ++ended;
    } catch (const std::runtime_error&) {
      EXPECT_EQ(rank.rank, 1);
      ++ended;
    }
    EXPECT_LT(rank.waiter->now() - begin, std::chrono::seconds(2)) << "a deadline was waited for";
  });
  EXPECT_EQ(ended, 4);
}

TEST(Executor, AnActionThatIsNotRunIsNamed) {
  plan::Schedule schedule = plan::parse_schedule("0: F0.0 RC0.0 B0.0\n");
  run_ranks(1, [&](RankContext& rank) {
    Executor executor = executor_of(rank, schedule);
    Traces traces(*rank.waiter, 1);
    try {
      executor.run(schedule, std::vector<std::string>{"train"}, traces);
      ADD_FAILURE() << "it ran";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("RC0.0, an action that Trireme does not run"));
    }
  });
}

}  // namespace
}  // namespace trireme::parallel::executor_test
