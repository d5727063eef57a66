// A user's own loop with a Checkpointer, and signals: all ranks save the same step and end with the
// code of docs/errors.md. The next start continues there as if the run had not stopped.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/stack.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <unistd.h>

#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/input/batches.h"
#include "trireme/input/loader_sampler.h"
#include "trireme/job.h"
#include "trireme/models/module_block.h"
#include "trireme/storage/file_system.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/strategy.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ProcessOptions;
using testing::ProcessRun;
using testing::RunningProcesses;

// Sample i is a function of i. An epoch has four batches of 6 and one of 2, of which two of three
// ranks get nothing.
constexpr std::int64_t kSamples = 26, kBatch = 6, kMicro = 2;
constexpr long kPerEpoch = 5;

at::Tensor features(std::int64_t i) {
  return at::cos(at::arange(4, at::kFloat) * static_cast<double>(i));
}

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(std::size_t i) override {
    const at::Tensor x = features(static_cast<std::int64_t>(i));
    return {x, x.flip(0)};
  }
  std::optional<std::size_t> size() const override { return kSamples; }
};

struct Samples final : Dataset {
  std::int64_t size() const override { return kSamples; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size());
  }
  input::Fields read(std::span<const std::int64_t> samples) const override {
    std::vector<at::Tensor> rows;
    for (const std::int64_t i : samples) rows.push_back(features(i));
    const at::Tensor x = at::stack(rows);
    return {{"tokens", x}, {"targets", x.flip(1)}};
  }
};

// argv: folder, steps, steps between checkpoints.
struct Arguments {
  explicit Arguments(char** argv)
      : folder(argv[1]), steps(std::atol(argv[2])), every(std::atol(argv[3])) {}
  std::string folder;
  long steps, every;
  CheckpointerOptions options() const { return {.every = every, .keep = 100}; }
};

void say_first(long first) { std::printf("goes on at %ld\n", first); }

// Prints "running" after a few steps; `>=` because a rank may pass two steps at once.
void say_running(long first, long steps_done) {
  static bool said = false;
  if (!said && steps_done >= first + 4) said = std::printf("running\n") > 0;
}

TRIREME_PROCESS(data_parallel) {
  const Arguments given(argv);
  Job job(argc, argv);
  at::manual_seed(1);
  torch::nn::Linear net(4, 4);
  torch::optim::Adam adam(net->parameters(), 1e-2);
  DataParallel parallel(job, *net, adam);
  Sampler sampler(job, kSamples, {.batch = kBatch});
  auto loader = torch::data::make_data_loader(Points().map(torch::data::transforms::Stack<>()),
                                              sampler, static_cast<std::size_t>(kMicro));
  Checkpointer checkpointer(job, given.folder, given.options());
  checkpointer.add("train", parallel).add("data", sampler);
  const long first = checkpointer.resume();
  say_first(first);
  while (parallel.steps() < given.steps) {
    for (auto& micro : *loader) {
      (net->forward(micro.data) - micro.target).pow(2).mean().backward();
      if (!parallel.step()) continue;
      say_running(first, parallel.steps());
      checkpointer.after(parallel.steps() - 1);
      if (parallel.steps() >= given.steps) break;
    }
  }
  std::printf("weights %s\n", parallel.weights_hash().c_str());
  return 0;
}

// A program that cleans up before it ends.
TRIREME_PROCESS(strategy) try {
  const Arguments given(argv);
  Job job(argc, argv);
  Blocks net;
  net.add("in", [] { return torch::nn::Linear(4, 8); });
  net.add("out", [] { return torch::nn::Linear(8, 4); });
  Strategy strategy(job, net, {.sync = "zero1"}, AdamW{.learning_rate = 1e-2});
  auto input = batches(job, std::make_shared<Samples>(),
                       {.batch = kBatch, .micro = kMicro, .steps = given.steps});
  Checkpointer checkpointer(job, given.folder, given.options());
  checkpointer.add("train", strategy).add("data", input);
  const long first = checkpointer.resume();
  say_first(first);
  const Loss squares = [](const auto& output, const MicroBatch& micro) {
    return (output.at(0) - micro.field("targets")).pow(2).sum();
  };
  for (auto& batch : input) {
    strategy.step(batch, squares);
    say_running(first, input.position());
    checkpointer.after(input.position() - 1);
  }
  std::printf("weights %s\n", strategy.weights_hash().c_str());
  return 0;
} catch (const StopRequested& stop) {
  std::printf("tidied up: %s\n", stop.what());
  return stop.exit_code();
}

// A Saveable without any collective of its own.
struct Sum final : Saveable {
  std::vector<NamedShard> state() override { return {{"sum", DType::F32, {1}, 0, 1, value}}; }
  std::string metadata() const override { return "{}"; }
  void restored(const std::string&) override {}
  at::Tensor value = at::zeros({1});
};

TRIREME_PROCESS(collectives) {
  const Arguments given(argv);
  Job job(argc, argv);
  Sum sum;
  Checkpointer checkpointer(job, given.folder, given.options());
  checkpointer.add("train", sum);
  const long first = checkpointer.resume();
  say_first(first);
  for (long step = first; step < given.steps; ++step) {
    std::vector<float> x{static_cast<float>(step % 7)};
    all_reduce(job.world(), x, trireme::Sum);
    sum.value.add_(x[0]);
    say_running(first, step + 1);
    checkpointer.after(step);
  }
  std::printf("weights %f\n", sum.value.item<double>());
  return 0;
}

class OwnLoop : public ::testing::Test {
 protected:
  OwnLoop() { fs::remove_all(folder_); }
  ~OwnLoop() override { fs::remove_all(folder_); }

  using Send = std::function<void(const RunningProcesses& running)>;
  // Calls `send` when `teller` is in the middle of its steps.
  ProcessRun run(const std::string& body, int ranks, const std::string& folder, long steps,
                 long every, int teller = 0, const Send& send = {}) const {
    ProcessOptions options;
    options.arguments = {folder_ / folder, std::to_string(steps), std::to_string(every)};
    options.time_limit = std::chrono::seconds(120);
    options.on_line = [&](int rank, std::string_view line, const RunningProcesses& running) {
      if (rank == teller && line == "running" && send) send(running);
    };
    return testing::run_processes(ranks, body, options);
  }
  std::vector<std::string> saved(const std::string& folder) const {
    auto names = storage::local_file_system()->list((folder_ / folder).string());
    std::erase(names, ".lock");
    return names;
  }
  static std::string after(const std::string& text, const std::string& words) {
    const auto at = text.find(words);
    if (at == text.npos) return "";
    return text.substr(at + words.size(), text.find('\n', at) - at - words.size());
  }
  void expect_stopped_and_resumed(const std::string& body, int ranks, int code, int teller,
                                  const Send& send);

  const fs::path folder_ =
      fs::path(::testing::TempDir()) / ("own_loop_" + std::to_string(::getpid()));
};

// Stops after some step, resumes to the next epoch's end, and compares with an uninterrupted run.
void OwnLoop::expect_stopped_and_resumed(const std::string& body, int ranks, int code, int teller,
                                         const Send& send) {
  fs::remove_all(folder_);
  const ProcessRun stopped = run(body, ranks, "run", 1000000, 0, teller, send);
  EXPECT_EQ(stopped.exit_code, code) << stopped.describe();
  for (const auto& rank : stopped.ranks) EXPECT_EQ(rank.exit_code, code) << stopped.describe();
  const auto names = saved("run");
  ASSERT_EQ(names.size(), 2u) << stopped.describe();  // latest, and the checkpoint of the stop
  const long done = std::stol(names[1].substr(names[1].rfind('-') + 1));
  EXPECT_GE(done, 4);
  const std::string said = stopped.ranks[0].out + stopped.ranks[0].err;
  EXPECT_THAT(said, HasSubstr(" after step " + std::to_string(done) + "; the checkpoint is in " +
                              (folder_ / "run" / names[1]).string()))
      << stopped.describe();
  EXPECT_THAT(said, HasSubstr("Start the program again: it goes on there."));
  const long end = (done / kPerEpoch + 2) * kPerEpoch;  // where ranks took equal steps
  const ProcessRun resumed = run(body, ranks, "run", end, 0);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.describe();
  EXPECT_EQ(after(resumed.ranks[0].out, "goes on at "), std::to_string(done));
  const ProcessRun whole = run(body, ranks, "whole", end, 0);
  ASSERT_EQ(whole.exit_code, 0) << whole.describe();
  EXPECT_EQ(after(resumed.ranks[0].out, "weights "), after(whole.ranks[0].out, "weights "));
}

constexpr std::pair<int, int> kCodes[] = {
    {SIGINT, 130}, {SIGTERM, 143}, {SIGUSR1, 143}, {SIGHUP, 143}};

TEST_F(OwnLoop, ASignalToOneRankSavesOnAll) {
  for (const auto& [one, code] : kCodes) {
    const int signal = one;
    expect_stopped_and_resumed("data_parallel", 2, code, 1, [&](const auto& running) {
      testing::send_signal(running.pids[1], signal);
    });
  }
}

TEST_F(OwnLoop, ASignalToAllRanksSavesOnAll) {
  for (const char* body : {"strategy", "collectives"}) {
    expect_stopped_and_resumed(body, 2, 143, 0, [](const auto& running) {
      for (const pid_t pid : running.pids) testing::send_signal(pid, SIGTERM);
    });
  }
}

TEST_F(OwnLoop, OneRankAloneStopsToo) {
  for (const char* body : {"data_parallel", "strategy", "collectives"}) {
    expect_stopped_and_resumed(body, 1, 143, 0, [](const auto& running) {
      testing::send_signal(running.pids[0], SIGUSR1);
    });
  }
}

// Two of three ranks get nothing of an epoch's last batch and pass two steps at once.
TEST_F(OwnLoop, AStopWaitsForRanksWithoutAShare) {
  for (int told = 0; told < 3; ++told) {
    expect_stopped_and_resumed("data_parallel", 3, 143, told, [&](const auto& running) {
      testing::send_signal(running.pids[static_cast<std::size_t>(told)], SIGUSR1);
    });
  }
}

TEST_F(OwnLoop, ACheckpointWaitsForRanksWithoutAShare) {
  const ProcessRun done = run("data_parallel", 3, "run", 25, 4);  // 5, 10, ... are short batches
  ASSERT_EQ(done.exit_code, 0) << done.describe();
  EXPECT_THAT(saved("run"), ElementsAre("latest", "step-00000005", "step-00000008", "step-00000012",
                                        "step-00000016", "step-00000020", "step-00000025"));
}

}  // namespace
}  // namespace trireme
