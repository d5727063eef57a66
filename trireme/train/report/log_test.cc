#include "trireme/train/report/log.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/input/batches.h"
#include "trireme/job/job.h"
#include "trireme/models/models.h"
#include "trireme/net/sim/sim_network.h"
#include "trireme/strategy/data_parallel.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// Row i and its target are functions of i.
class Waves final : public Dataset {
 public:
  std::int64_t size() const override { return 16; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size());
  }
  input::Fields read(std::span<const std::int64_t> samples) const override {
    std::vector<at::Tensor> rows;
    for (const std::int64_t i : samples)
      rows.push_back(at::sin(at::arange(4) * (0.3 * static_cast<double>(i + 1))));
    const at::Tensor features = at::stack(rows);
    return {{"features", features}, {"targets", features.sum(1, true)}};
  }
};

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    std::string pattern = ::testing::TempDir() + "log-XXXXXX";
    place_ = mkdtemp(pattern.data());
  }
  ~LogTest() override { fs::remove_all(place_); }
  std::string path(const std::string& name) const { return (place_ / name).string(); }

  // The loop of a rank: 4 steps of 2 s on the simulated clock, and a validation.
  void train(Job& job, LogOptions options) {
    const auto data = std::make_shared<Waves>();
    Strategy strategy(job, models::make_mlp({.widths = {4, 8, 1}}), {.clip = 1.0}, AdamW{});
    Batches input = batches(job, data, {.batch = 8, .micro = 2, .prefetch = 0});
    const Loss loss = [](const auto& output, const MicroBatch& micro) {
      return (output.at(0) - micro.field("targets")).pow(2).sum();
    };
    options.input = &input;
    Log log(job, path("run/"), options);
    for (int step = 0; step < 4; ++step) {
      job.waiter()->sleep(std::chrono::seconds(2));
      const StepResult result = strategy.step(input.next(), loss);
      losses_[job.rank()].push_back(result.loss);
      log.step(result);
    }
    log.validation(0.5, 8);
  }

  void train_module(bool tells_loss);

  // Returns the output of two ranks.
  std::string train_two(const LogOptions& options) {
    ::testing::internal::CaptureStdout();
    net::SimNetwork network(2);
    network.run([&](int rank) {
      Job job(network.transport(rank), {}, nullptr);
      train(job, options);
    });
    return ::testing::internal::GetCapturedStdout();
  }

  std::vector<Json> events(const std::string& name = "run/events.jsonl") const {
    std::ifstream file(path(name));
    std::vector<Json> all;
    for (std::string line; std::getline(file, line);) all.push_back(Json::parse(line));
    return all;
  }
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return text.str();
  }

  fs::path place_;
  std::map<int, std::vector<double>> losses_;
};

TEST_F(LogTest, GivesAnOwnLoopWhatTrainHas) {
  const std::string printed = train_two({.steps = 4, .items = "samples", .unit = "metres squared"});
  EXPECT_EQ(losses_[0], losses_[1]);
  const std::vector<Json> all = events();
  ASSERT_EQ(all.size(), 6u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(all[i].at("event"), "step");
    EXPECT_EQ(all[i].at("step"), i + 1);
    EXPECT_EQ(all[i].at("loss").get<double>(), losses_[0][i]);
    EXPECT_NEAR(all[i].at("step_seconds").get<double>(), 2, 0.1);
    EXPECT_NEAR(all[i].at("samples_per_second").get<double>(), 4, 0.2);
    EXPECT_EQ(all[i].at("learning_rate"), AdamW{}.learning_rate);
    EXPECT_GT(all[i].at("gradient_norm"), 0);
    EXPECT_EQ(all[i].at("input_seconds"), 0);
  }
  EXPECT_EQ(all[4].at("event"), "validation");
  EXPECT_EQ(all[4].at("samples"), 8);
  EXPECT_EQ(all[5].at("event"), "stragglers");
  EXPECT_THAT(printed, AllOf(HasSubstr("step 1 of 4 · loss "), HasSubstr(" · 4 samples/s · "),
                             HasSubstr("validation after step 4: loss 0.500 metres squared\n"),
                             HasSubstr("the log is in " + path("run"))));
  EXPECT_EQ(printed.find("step 4 of 4"), printed.rfind("step 4 of 4")) << "both ranks print";
  EXPECT_THAT(text_of("run/loss.svg"),
              AllOf(HasSubstr("run: loss"), HasSubstr("2 ranks"), HasSubstr("metres squared")));
  EXPECT_FALSE(fs::is_empty(path("run/tensorboard")));
}

// Two ranks with different losses and 8 samples each per step. A step takes 2 s; in it, rank 0
// waits half a second for rank 1.
void LogTest::train_module(bool tells_loss) {
  net::SimNetwork network(2);
  network.run([&](int rank) {
    Job job(network.transport(rank), {}, nullptr);
    torch::nn::Linear net(4, 1);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.125));
    DataParallel parallel(job, *net, sgd, {.clip = tells_loss ? 1.0 : 0.0});
    Log log(job, path("run"), {.steps = 3, .items = "samples"});
    for (int step = 0; step < 3; ++step) {
      job.waiter()->sleep(std::chrono::milliseconds(rank == 0 ? 1500 : 2000));
      const at::Tensor sum = (net->forward(at::ones({8, 4})) - 5.0 * rank).pow(2).sum();
      losses_[rank].push_back(sum.item<double>() / 8);
      tells_loss ? parallel.backward(sum, 8) : sum.backward();
      EXPECT_TRUE(parallel.step());
      log.step(parallel);
      log.step(parallel);  // no batch has ended since the last call
    }
  });
}

TEST_F(LogTest, TellsOfAllRanksWhatDataParallelTrained) {
  ::testing::internal::CaptureStdout();
  train_module(true);
  const std::string printed = ::testing::internal::GetCapturedStdout();
  const std::vector<Json> all = events();
  ASSERT_EQ(all.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all[i].at("step"), i + 1);
    if (i > 0) {  // before the first vote, only the passes are known
      EXPECT_EQ(all[i].at("last_rank"), 1);
      EXPECT_NEAR(all[i].at("behind_seconds").get<double>(), 0.5, 0.05);
    }
    EXPECT_NE(losses_[0][i], losses_[1][i]);
    EXPECT_DOUBLE_EQ(all[i].at("loss").get<double>(), (losses_[0][i] + losses_[1][i]) / 2);
    EXPECT_NEAR(all[i].at("step_seconds").get<double>(), 2, 0.1);
    EXPECT_NEAR(all[i].at("samples_per_second").get<double>(), 8, 0.4);
    EXPECT_EQ(all[i].at("learning_rate"), 0.125);
    EXPECT_GT(all[i].at("gradient_norm"), 0);
    EXPECT_NEAR(all[i].at("communication_seconds").get<double>(), 0.5, 0.05);
    EXPECT_FALSE(all[i].contains("input_seconds"));
  }
  EXPECT_EQ(all[3].at("event"), "stragglers");
  EXPECT_EQ(all[3].at("last_steps"), (std::vector<int>{0, 2}));
  EXPECT_NEAR(all[3].at("behind_seconds")[1].get<double>(), 1, 0.1);
  EXPECT_THAT(printed, AllOf(HasSubstr("step 3 of 3 · loss "), HasSubstr(" · 8 samples/s · "),
                             HasSubstr("rank 1 came last in 2 of 2 steps"),
                             Not(HasSubstr("does not know"))));
}

TEST_F(LogTest, LeavesOutWhatItIsNotTold) {
  ::testing::internal::CaptureStdout();
  train_module(false);
  const std::string printed = ::testing::internal::GetCapturedStdout();
  std::vector<Json> all = events();
  ASSERT_EQ(all.size(), 4u);
  all.pop_back();  // of the slower rank
  for (const Json& event : all) {
    for (const char* name : {"loss", "gradient_norm", "samples_per_second", "input_seconds"})
      EXPECT_FALSE(event.contains(name)) << event;
    EXPECT_EQ(event.at("learning_rate"), 0.125);
    EXPECT_TRUE(event.contains("communication_seconds"));
  }
  EXPECT_THAT(printed, AllOf(HasSubstr("call parallel.backward(loss)"), Not(HasSubstr("· loss")),
                             Not(HasSubstr("samples/s"))));
  net::SimNetwork network(1);
  network.run([&](int rank) {
    Job job(network.transport(rank), {}, nullptr);
    Log log(job, path("figures"));
    log.step({.loss = 1.5, .count = 64});
  });
  all = events("figures/events.jsonl");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].at("loss"), 1.5);
  for (const char* name : {"learning_rate", "gradient_norm", "communication_seconds"})
    EXPECT_FALSE(all[0].contains(name)) << name;
}

TEST_F(LogTest, GoesOnWhereAResumedLoopIs) {
  train_two({.steps = 4});
  train_two({.steps = 6, .first = 2});  // steps 3 ... 6
  const std::vector<Json> all = events();
  ASSERT_EQ(all.size(), 8u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(all[i].at("step"), i + 1);
  EXPECT_EQ(all[2].at("loss").get<double>(), losses_[0][4]) << "the first run's step 3 is gone";
  EXPECT_EQ(all[6].at("event"), "validation");
  EXPECT_EQ(all[7].at("steps"), 3) << "its own steps but the first";
}

TEST_F(LogTest, KeepsTheEventsOfARunThatItDoesNotGoOnWith) {
  train_two({});
  const std::vector<Json> first = events();
  const std::string printed = train_two({});
  train_two({});
  EXPECT_EQ(events("run/events.1.jsonl"), first);
  EXPECT_EQ(events("run/events.2.jsonl").size(), 6u);
  EXPECT_EQ(events().size(), 6u);
  EXPECT_THAT(printed, AllOf(HasSubstr("step 1 · loss"), Not(HasSubstr("left"))));
}

TEST_F(LogTest, NamesTheFolderThatCannotBeMade) {
  std::ofstream(path("run")) << "a file";
  net::SimNetwork network(1);
  network.run([&](int rank) {
    Job job(network.transport(rank), {}, nullptr);
    try {
      Log log(job, path("run/below"));
      FAIL() << "a file was taken for a folder";
    } catch (const ResourceError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path("run/below")));
    }
  });
}

// After an error of the loop there is no plot and no closing line.
TEST_F(LogTest, SaysNothingMoreWhereTheLoopThrows) {
  ::testing::internal::CaptureStdout();
  net::SimNetwork network(1);
  network.run([&](int rank) {
    Job job(network.transport(rank), {}, nullptr);
    try {
      Log log(job, path("run"));
      log.step({.loss = 1.5, .count = 64});
      throw std::runtime_error("out of data");
    } catch (const std::runtime_error&) {
    }
  });
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), Not(HasSubstr("the log is in")));
  EXPECT_EQ(events().size(), 1u);
  EXPECT_FALSE(fs::exists(path("run/loss.svg")));
}

}  // namespace
}  // namespace trireme
