// Same training, the whole matrix: ranks x transport x sync x lanes, with accumulation, clipping
// and dropout. same_training_test.cc has a part of it for every change, and all algorithms.
#include "tests/numerics/same_training.h"
#include "tests/numerics/training.h"
#include "trireme/sync/sync_plan.h"

namespace trireme {
namespace {

using numerics::Case;
using numerics::Layout;

constexpr std::chrono::seconds kLimit{400};  // per layout

// 12 micro-batches per step; the norms exceed the clip limit in every step.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {.name = "blocks-gpt-dropout", .steps = 5, .clip = 0.05},
      {.name = "blocks-gpt-bf16", .steps = 5, .clip = 0.05},
      {.name = "blocks-gpt-fp16", .steps = 5, .clip = 0.05},
      {.name = "blocks-tied", .steps = 5, .clip = 0.05},
      {.name = "blocks-mlp", .steps = 5, .clip = 0.05},
      {.name = "module-tied", .steps = 5, .clip = 0.05},
      {.name = "module-mlp", .steps = 5, .clip = 0.05},
  };
  return all;
}

TRIREME_PROCESS(train) {
  Job job(argc, argv);
  for (Case which : cases()) {
    const bool module = which.name.starts_with("module");
    for (const std::string& sync : parallel::level_names()) {
      which.sync = sync;
      if (module && parallel::shards_weights(sync)) continue;
      for (const int lanes : {1, 2, 4}) {
        if (module && lanes > 1) continue;
        which.lanes = lanes;
        const numerics::Record record = train(job, which);
        std::printf("RESULT %s %s-%d-lanes %s %s\n", which.name.c_str(), sync.c_str(), lanes,
                    record.hash.c_str(), record.losses.c_str());
      }
    }
  }
  return 0;
}

const std::map<std::string, std::string>& one_rank() {
  static const auto one = by_case(numerics::train_layout({.time_limit = kLimit}));
  return one;
}

class FullMatrix : public ::testing::TestWithParam<Layout> {};

TEST_P(FullMatrix, IsOneTraining) {
  Layout layout = GetParam();
  layout.time_limit = kLimit;
  const auto merged = by_case(numerics::train_layout(layout));
  EXPECT_EQ(merged.size(), cases().size());
  EXPECT_EQ(merged, one_rank());
}

INSTANTIATE_TEST_SUITE_P(Every, FullMatrix,
                         ::testing::Values(Layout{2, "shm"}, Layout{3, "shm"}, Layout{4, "shm"},
                                           Layout{8, "shm"}, Layout{2, "tcp"}, Layout{3, "tcp"},
                                           Layout{4, "tcp"}, Layout{8, "tcp"}),
                         [](const auto& info) {
                           return std::to_string(info.param.ranks) + info.param.transport;
                         });

// Otherwise clipping might never be tested.
TEST(FullMatrixCases, TheClipIsReached) {
  Job job(0, nullptr);
  for (Case which : cases()) {
    const std::string clipped = train(job, which).hash;
    which.clip = 0;
    EXPECT_NE(train(job, which).hash, clipped) << which.name;
  }
}

}  // namespace
}  // namespace trireme
