// Same training, pipelines: real processes, every kind of model, clipped and accumulated, against
// one process, bit for bit.
#include <csignal>

#include "tests/numerics/same_training.h"
#include "tests/numerics/training.h"

namespace trireme::pipeline_test {
namespace {

using numerics::Case;
using numerics::Layout;

// 12 micro-batches per step. Tied models have the owner in the first stage and a use in the last.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {.name = "blocks-gpt", .steps = 5, .clip = 0.05},
      {.name = "blocks-gpt-bf16", .steps = 5, .clip = 0.05},
      {.name = "blocks-gpt-fp16", .steps = 5, .clip = 0.05},
      {.name = "blocks-tied", .steps = 5, .clip = 0.05},
      {.name = "blocks-gpt-dropout", .steps = 5, .clip = 0.05},
      {.name = "blocks-dropout-foreign", .steps = 5},
      {.name = "blocks-resnet", .steps = 3},
      {.name = "blocks-bert", .steps = 5},
  };
  return all;
}

// Arguments: pipeline ranks, schedule; none: one process.
const char* const kBody = "train_pipeline";
TRIREME_PROCESS(train_pipeline) {
  Job job(argc, argv);
  for (Case which : cases()) {
    if (argc > 2) {
      which.pipeline = std::stoi(argv[1]);
      which.schedule = argv[2];
      // Their three blocks cannot fill four stages.
      const bool three = which.name == "blocks-tied" || which.name == "blocks-bert";
      if (three && (which.pipeline > 2 || which.schedule == "zb-v")) continue;
    }
    const numerics::Record record = train(job, which);
    std::printf("RESULT %s %s %s %s\n", which.name.c_str(), which.schedule.c_str(),
                record.hash.c_str(), record.losses.c_str());
    for (const std::string& item : record.computed)
      std::printf("COMPUTED %s %s %s\n", which.name.c_str(), which.schedule.c_str(), item.c_str());
  }
  return 0;
}

void expect_same(Layout layout) {
  layout.body = kBody;
  const auto one = numerics::one_rank(kBody);
  const numerics::Results results = numerics::train_layout(layout);
  const auto merged = by_case(results);
  EXPECT_GE(merged.size(), cases().size() - 2);
  for (const auto& [which, value] : merged)
    EXPECT_EQ(value, one.at(which)) << which << " on " << layout.ranks << " ranks, "
                                    << layout.arguments[1] << " over " << layout.transport;
  for (const auto& [key, items] : results.computed)
    EXPECT_EQ(items, numerics::reference(kBody).computed_of(key.substr(0, key.find(' ')))) << key;
}

TEST(PipelineTraining, TwoRanksShm) { expect_same({2, "shm", {"2", "1f1b"}}); }
TEST(PipelineTraining, TwoRanksTcp) { expect_same({2, "tcp", {"2", "gpipe"}}); }
TEST(PipelineTraining, TwoRanksInAV) { expect_same({2, "shm", {"2", "zb-v"}}); }
TEST(PipelineTraining, FourRanksShm) { expect_same({4, "shm", {"4", "zb-h1"}}); }
TEST(PipelineTraining, TwoByTwoShm) { expect_same({4, "shm", {"2", "1f1b"}}); }
TEST(PipelineTraining, TwoByThreeTcp) { expect_same({6, "tcp", {"2", "gpipe"}}); }

// Dies between its receive and its send, in the step after shapes were agreed.
TRIREME_PROCESS(dies) {
  Job job(argc, argv);
  const bool victim = job.rank() == std::stoi(argv[1]);
  int passes = 0;
  models::Blocks blocks;
  blocks.add("embed", [] { return numerics::initialized<numerics::Embed>(1, "embed."); });
  for (const char* name : {"one", "two"})
    blocks.add(name, [&, name] {
      return [&, name](const at::Tensor& x) {
        if (victim && ++passes == 15 && name == std::string(argv[2])) std::raise(SIGKILL);
        return x * 2;
      };
    });
  blocks.add("head", [] { return numerics::initialized<numerics::Head>(1, "head."); });
  Strategy strategy(job, blocks, {.pipeline = 4}, AdamW{});
  const Case which{.name = "blocks-tied"};
  try {
    for (std::int64_t step = 0; step < 3; ++step)
      strategy.step(numerics::batch_of(which, step, job), token_loss());
  } catch (const PeerLost& error) {
    std::printf("lost %d\n", error.peer());
    std::fflush(stdout);
    throw;
  }
  return 0;
}

TEST(PipelineFailures, ARankKilledBetweenReceiveAndSendIsNamed) {
  for (const char* transport : {"shm", "tcp"}) {
    for (const auto& [victim, block] : {std::pair{1, "one"}, {2, "two"}}) {
      testing::ProcessOptions options{.time_limit = std::chrono::seconds(60),
                                      .transport = transport};
      options.arguments = {std::to_string(victim), block};
      const testing::ProcessRun run = testing::run_processes(4, "dies", options);
      EXPECT_EQ(run.exit_code, 137) << run.describe();
      for (int rank = 0; rank < 4; ++rank) {
        if (rank == victim) continue;
        EXPECT_EQ(run.ranks[rank].out, "lost " + std::to_string(victim) + "\n") << run.describe();
        EXPECT_EQ(run.ranks[rank].exit_code, 160) << run.describe();
      }
    }
  }
}

}  // namespace
}  // namespace trireme::pipeline_test
