// Compares the simulator with published numbers, with the closed formulas, and with its own rules.
#include "trireme/plan/schedule/pipeline_simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/plan/schedule/schedule_transfers.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using namespace plan;

double bubble(std::string_view name, const ScheduleShape& shape, const PipelineTimes& times = {}) {
  return simulate(make_schedule(name, shape), times).bubble_rate;
}

std::string four_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

// Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241: the bubble rates of table 5, and
// the profiled times (ms) behind them, table 9 (table 6 of the ICLR 2024 paper).
struct Published {
  const char* model;
  int stages, microbatches;
  double forward, input, weight, message;
  const char *one_f_one_b, *zb_h1, *zb_h2;
};
constexpr Published kZeroBubble[] = {
    {"1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, "0.2431", "0.1585", "0.1083"},
    {"1.5B", 8, 32, 18.513, 18.086, 9.331, 0.626, "0.1985", "0.1242", "0.0837"},
    {"1.5B", 8, 64, 18.546, 18.097, 9.321, 0.762, "0.1240", "0.0674", "0.0444"},
    {"6.2B", 8, 24, 29.718, 29.444, 19.927, 0.527, "0.2347", "0.1323", "0.0698"},
    {"6.2B", 8, 32, 29.802, 29.428, 19.530, 0.577, "0.1898", "0.1045", "0.0559"},
    {"6.2B", 8, 64, 29.935, 29.621, 19.388, 0.535, "0.1091", "0.0554", "0.0294"},
    {"14.6B", 16, 48, 11.347, 11.248, 8.132, 0.377, "0.2552", "0.1397", "0.0672"},
    {"14.6B", 16, 64, 11.307, 11.254, 8.101, 0.379, "0.2082", "0.1088", "0.0516"},
    {"14.6B", 16, 128, 11.325, 11.308, 8.109, 0.378, "0.1251", "0.0576", "0.0266"},
    {"28.3B", 32, 96, 10.419, 10.207, 7.715, 0.408, "0.2646", "0.1421", "0.0641"},
    {"28.3B", 32, 128, 10.408, 10.204, 7.703, 0.408, "0.2168", "0.1106", "0.0490"},
    {"28.3B", 32, 256, 10.402, 10.248, 7.698, 0.460, "0.1352", "0.0594", "0.0257"},
};

TEST(PipelineSimulator, GivesTheZeroBubblePapersRatesToTheLastDigit) {
  for (const Published& row : kZeroBubble) {
    SCOPED_TRACE(std::string(row.model) + ", " + std::to_string(row.microbatches));
    const ScheduleShape shape{row.stages, row.stages, row.microbatches};
    const PipelineTimes times{{{row.forward, row.input, row.weight}}, row.message};
    EXPECT_EQ(four_digits(bubble("1f1b", shape, times)), row.one_f_one_b);
    EXPECT_EQ(four_digits(bubble("zb-h1", shape, times)), row.zb_h1);
    EXPECT_EQ(four_digits(bubble("zb-h2", shape, times)), row.zb_h2);
  }
}

// Huang et al., arXiv 1811.06965, table 2, Transformer, M = 32: throughput with K partitions over
// that of two partitions with one micro-batch. Activations are recomputed, hidden while a partition
// waits for its gradient (section 2.3). A backward pass takes two forward passes.
TEST(PipelineSimulator, GivesGPipesSpeedUpsWithinSevenPercent) {
  const auto seconds = [](int partitions, int microbatches) {
    const double forward = 1.0 / partitions / microbatches;  // the model and the batch take 1
    const PipelineTimes times{{{forward, forward, forward}}, 0};
    const ScheduleShape shape{partitions, partitions, microbatches};
    return simulate(with_recompute(make_schedule("gpipe", shape)), times).end;
  };
  for (const auto& [partitions, published] :
       {std::pair{2, 1.8}, std::pair{4, 3.4}, std::pair{8, 6.3}}) {
    EXPECT_NEAR(seconds(2, 1) / seconds(partitions, 32), published, 0.07 * published)
        << partitions << " partitions";
  }
}

TEST(PipelineSimulator, GivesTheClosedFormulas) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 16; ++m) {
      SCOPED_TRACE(std::to_string(p) + " ranks, " + std::to_string(m) + " micro-batches");
      EXPECT_NEAR(bubble("naive", {p, p, m}), 1 - 1.0 / p, 1e-12);
      for (const char* name : {"gpipe", "1f1b"}) {
        EXPECT_NEAR(bubble(name, {p, p, m}), (p - 1.0) / (m + p - 1), 1e-12) << name;
      }
      for (int v = 2; v <= 4; ++v) {
        const double looped = (p - 1.0) / (v * m + p - 1);
        if (m >= p) {
          EXPECT_NEAR(bubble("breadth-first", {p, v * p, m}), looped, 1e-12);
        }
        if (m % p == 0) {
          EXPECT_NEAR(bubble("interleaved-1f1b", {p, v * p, m}), looped, 1e-12);
        }
      }
      // Section 2.3 of arXiv 2401.10241: (p-1)(T_F + T_B - T_W) for ZB-H1, zero for the others.
      if (m >= p) {
        EXPECT_NEAR(bubble("zb-h1", {p, p, m}), (p - 1.0) / (3 * m + p - 1), 1e-12);
      }
      if (m >= 2 * p - 1) {
        EXPECT_NEAR(bubble("zb-h2", {p, p, m}), 0, 1e-12);
        EXPECT_NEAR(bubble("zb-v", {p, 2 * p, m}), 0, 1e-12);
      }
    }
  }
}

// The DualPipe repository's table, for p ranks: (p-1)(F&B + B - 3W), where a pair F&B takes as long
// as its parts; here that is 2 for each rank but one.
TEST(PipelineSimulator, GivesDualPipeVsBubble) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 2 * p; m <= 2 * p + 8; ++m) {
      const Timeline timeline = simulate(make_schedule("dualpipe-v", {p, 2 * p, m}), {});
      EXPECT_EQ(timeline.cost, 6 * m + 2 * (p - 1)) << p << " ranks, " << m << " micro-batches";
    }
  }
}

// Checks the rules for every pass of every schedule, with random times.
void expect_rules(const Schedule& schedule, const PipelineTimes& times, const Timeline& timeline) {
  std::map<std::pair<bool, std::pair<int, int>>, double> made;  // gradient?, stage, micro-batch
  for (const auto& passes : timeline.ranks) {
    for (const auto& [action, begin, end] : passes) {
      if (goes_forward(action.kind)) made[{false, {action.stage, action.microbatch}}] = end;
      if (!goes_backward(action.kind)) continue;
      const bool pair = action.kind == ActionKind::ForwardBackward;
      made[{true, pair ? std::pair<int, int>{action.backward_stage, action.backward_microbatch}
                       : std::pair<int, int>{action.stage, action.microbatch}}] = end;
    }
  }
  const auto there = [&](bool gradient, int from, int to, int m) {
    if (from < 0 || from >= schedule.stages()) return 0.0;
    const auto rank = [&](int stage) {
      return schedule.rank_of_stage[static_cast<std::size_t>(stage)];
    };
    return made.at({gradient, {from, m}}) + (rank(from) == rank(to) ? 0 : times.message);
  };
  for (const auto& passes : timeline.ranks) {
    double free = 0;
    for (const auto& [action, begin, end] : passes) {
      double ready = free;
      if (goes_forward(action.kind)) {
        ready = std::max(ready, there(false, action.stage - 1, action.stage, action.microbatch));
      }
      if (action.kind == ActionKind::ForwardBackward) {
        ready = std::max(ready, there(true, action.backward_stage + 1, action.backward_stage,
                                      action.backward_microbatch));
      } else if (goes_backward(action.kind)) {
        ready = std::max(ready, there(true, action.stage + 1, action.stage, action.microbatch));
      }
      ASSERT_DOUBLE_EQ(begin, ready) << text_of(action);
      ASSERT_GE(end, begin);
      free = end;
    }
  }
}

TEST(PipelineSimulator, EveryPassBeginsAsSoonAsItCan) {
  std::mt19937 random(20240110);
  std::uniform_real_distribution<double> any(0.1, 3);
  for (const ScheduleEntry& entry : schedules()) {
    for (int round = 0; round < 20; ++round) {
      const int ranks = 1 + static_cast<int>(random() % 6);
      const int chunks = entry.chunks == Chunks::One ? 1 : 2;
      const ScheduleShape shape{ranks, ranks * chunks, 1 + static_cast<int>(random() % 12)};
      const Schedule schedule = make_schedule(entry.name, shape);
      PipelineTimes times{{}, any(random)};
      for (int stage = 0; stage < shape.stages; ++stage) {
        times.stages.push_back({any(random), any(random), any(random)});
      }
      SCOPED_TRACE(entry.name);
      const Timeline timeline = simulate(schedule, times);
      expect_rules(schedule, times, timeline);
      // Explicit sends and receives change no time.
      EXPECT_EQ(simulate(with_transfers(schedule), times).end, timeline.end);
    }
  }
}

TEST(PipelineSimulator, StagesOfDifferentLengthMakeABubbleOfTheirOwn) {
  // Two stages, one twice as long, many micro-batches: the short one waits half of the time.
  const PipelineTimes times{{{2, 2, 2}, {1, 1, 1}}, 0};
  EXPECT_NEAR(bubble("1f1b", {2, 2, 200}, times), 0.25, 0.01);
}

TEST(PipelineSimulator, RefusesTimesThatDoNotFit) {
  const Schedule schedule = make_schedule("gpipe", {3, 3, 2});
  const auto refusal = [&](const Schedule& of, const PipelineTimes& times) -> std::string {
    try {
      simulate(of, times);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(refusal(schedule, {{{}, {}}, 0}),
              HasSubstr("times are given for 2 stages, and the schedule has 3"));
  EXPECT_THAT(refusal(schedule, {{{-1, 1, 1}}, 0}), HasSubstr("negative"));
  EXPECT_THAT(refusal(schedule, {{{1, 1, 1}}, -1}), HasSubstr("negative"));
  EXPECT_THAT(refusal(schedule, {{{0, 0, 0}}, 0}), HasSubstr("no pass takes time"));
  EXPECT_THAT(refusal(parse_schedule("0: F1.0 F0.0 B1.0 B0.0"), {}), HasSubstr("deadlock"));
}

}  // namespace
}  // namespace trireme
