// An evaluator over folders that the test writes, on a clock that the test moves.
#include "trireme/train/evaluation/checkpoint_evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/observe/folder_lock.h"
#include "trireme/storage/faulty_file_system_test.h"
#include "trireme/storage/forwarding_file_system_test.h"

namespace trireme::checkpoint_evaluator_test {
namespace {

namespace fs = std::filesystem;
using storage::CheckpointFolder;
using storage::FaultyFileSystem;
using storage::local_file_system;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using train::CheckpointEvaluator;
using train::EvaluationRecord;
using train::EvaluatorOptions;
using train::RunFolder;

// One thread; a wait is the training's turn.
class TurnWaiter final : public Waiter {
 public:
  std::function<void()> turn = [] {};
  TimePoint now() const noexcept override { return now_; }
  void pass(Duration time) { now_ += time; }
  bool spins() const noexcept override { return false; }
  bool wait_until(const std::function<bool()>& ready, TimePoint deadline) override {
    turn();
    now_ = std::max(now_, deadline);
    return ready();
  }
  void wake() noexcept override {}
  void run(std::function<void()> task) override { task(); }
  bool try_run(const std::function<void()>&) override { return false; }
  void run_at(TimePoint, std::function<void()>) override {}
  void add(std::shared_ptr<ProgressSource>) override {}
  void remove(const ProgressSource*) override {}

 private:
  TimePoint now_{};
};

class CheckpointEvaluatorTest : public ::testing::Test {
 protected:
  CheckpointEvaluatorTest() {
    std::string pattern = ::testing::TempDir() + "evaluated-XXXXXX";
    run_.emplace(mkdtemp(pattern.data()));
    std::ofstream(run_->config()) << "# of the run\n";
  }
  ~CheckpointEvaluatorTest() override { fs::remove_all(run_->path()); }

  void save(std::int64_t step, int keep = 3) const {
    const storage::FileWriter file = [step](const auto& sink) {
      const std::string text = "weights of step " + std::to_string(step);
      sink(std::as_bytes(std::span(text)));
    };
    CheckpointFolder(local_file_system(), run_->checkpoint())
        .write({.step = step}, {{storage::kModelFile, file}, {storage::kStateFile, file}}, keep);
  }
  // A training that saves `steps` checkpoints, one in each of the evaluator's waits.
  void train(std::int64_t steps) {
    waiter_->turn = [this, steps] {
      if (saved_ < steps) save(++saved_);
    };
    ended_ = [this, steps] { return saved_ == steps; };
  }
  EvaluatorOptions options() {
    return {.waiter = waiter_,
            .evaluate =
                [this](const std::string& folder, std::int64_t step) {
                  const CheckpointFolder given(local_file_system(), folder);
                  EXPECT_THAT(given.steps(), ElementsAre(step));
                  if (during_) during_(step);
                  given.verify(step);
                  EXPECT_EQ(given.read_text(step, storage::kModelFile),
                            "weights of step " + std::to_string(step));
                  const double loss = loss_(step);
                  return train::EvaluatedCheckpoint{
                      loss, observe::validation_event(static_cast<long>(step), loss, 8, {})};
                },
            .ended = [this] { return ended_(); },
            .stopped = [this] { return stopped_(); },
            .say = [this](const std::string& line) { said_ += line + "\n"; },
            .patience = std::chrono::minutes(15)};
  }
  // The evaluator's files and the checkpoints are in a storage that is away from the `at`-th operation
  // on, for `time`. Whether run() has met that.
  bool evaluate_without_storage(int at, Duration time) {
    const auto storage = std::make_shared<storage::AskedFileSystem>();
    int operations = 0;
    std::optional<TimePoint> back;
    storage->asked = [&] {
      if (operations++ < at) return;
      if (!back) back = waiter_->now() + time;
      if (waiter_->now() < *back) throw ResourceError("the storage is away", {});
    };
    CheckpointEvaluator evaluator(RunFolder(run_->path(), storage), options(), storage);
    evaluator.run();
    return back.has_value();
  }
  void evaluate() { CheckpointEvaluator(*run_, options()).run(); }

  std::vector<nlohmann::json> events(const std::string& kind) const {
    std::vector<nlohmann::json> found;
    std::ifstream file(run_->evaluations());
    for (std::string line; std::getline(file, line);) {
      found.push_back(nlohmann::json::parse(line));
      if (found.back().at("event") != kind) found.pop_back();
    }
    return found;
  }
  std::vector<std::int64_t> steps(const std::string& kind) const {
    std::vector<std::int64_t> found;
    for (const nlohmann::json& event : events(kind)) found.push_back(event.at("step"));
    return found;
  }
  CheckpointFolder best() const {
    return {local_file_system(), RunFolder(run_->best()).checkpoint()};
  }

  std::optional<RunFolder> run_;
  const std::shared_ptr<TurnWaiter> waiter_ = std::make_shared<TurnWaiter>();
  std::int64_t saved_ = 0;
  std::function<bool()> ended_ = [] { return true; };
  std::function<bool()> stopped_ = [] { return false; };
  std::function<void(std::int64_t)> during_;  // while a checkpoint is evaluated
  std::function<double(std::int64_t)> loss_ = [](std::int64_t step) {
    return std::abs(static_cast<double>(step) - 4);
  };
  std::string said_;
};

TEST_F(CheckpointEvaluatorTest, EachIsEvaluatedOnceInOrderAndTheBestIsKept) {
  train(7);
  evaluate();
  EXPECT_THAT(steps("validation"), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  std::vector<bool> best_so_far;
  for (const auto& event : events("validation")) {
    best_so_far.push_back(event.at("best"));
    EXPECT_EQ(event.at("loss"), loss_(event.at("step")));
    EXPECT_GT(event.at("time").get<double>(), 1.6e9);
    EXPECT_EQ(event.at("seconds"), 0);
  }
  EXPECT_THAT(best_so_far, ElementsAre(true, true, true, true, false, false, false));
  EXPECT_THAT(best().steps(), ElementsAre(4));
  best().verify(4);
  std::ifstream config(RunFolder(run_->best()).config());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(config), {}), "# of the run\n");
  EXPECT_FALSE(fs::exists(run_->evaluating()));
  EXPECT_EQ(RunFolder(run_->best()).state(), train::RunState::Run);
  EXPECT_THAT(said_, HasSubstr("the best of 7 evaluated checkpoints: step 4, loss 0.0000"));
  evaluate();  // again: there is nothing to do
  EXPECT_THAT(steps("validation"), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(best().steps(), ElementsAre(4));
}

TEST_F(CheckpointEvaluatorTest, ASlowEvaluatorTakesTheOldestThatIsLeftAndNamesWhatItMissed) {
  train(20);
  during_ = [this](std::int64_t) {  // two more meanwhile
    for (int i = 0; i < 2 && saved_ < 20; ++i) save(++saved_);
  };
  evaluate();
  const auto done = steps("validation"), missed = steps("missed");
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), 20);
  EXPECT_FALSE(missed.empty());
  for (const std::int64_t step : missed) EXPECT_EQ(std::count(done.begin(), done.end(), step), 0);
  EXPECT_THAT(said_, HasSubstr("is not evaluated: checkpoint.keep removed it before its turn"));
}

TEST_F(CheckpointEvaluatorTest, ACheckpointThatIsRemovedMeanwhileStaysReadable) {
  train(3);
  during_ = [this](std::int64_t step) {
    fs::remove_all(CheckpointFolder(local_file_system(), run_->checkpoint()).path_of(step));
  };
  evaluate();
  EXPECT_THAT(steps("validation"), ElementsAre(1, 2, 3));
  EXPECT_THAT(best().steps(), ElementsAre(3));
  best().verify(3);
}

TEST_F(CheckpointEvaluatorTest, DamageAndLossesThatAreNoNumbersAreNamedAndDoNotEndIt) {
  train(4);
  during_ = [](std::int64_t step) {
    if (step == 2) throw CheckpointError("torn", {});
  };
  loss_ = [](std::int64_t step) {
    return step == 3 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / static_cast<double>(step);
  };
  evaluate();
  evaluate();
  EXPECT_THAT(steps("validation"), ElementsAre(1, 3, 4));
  EXPECT_THAT(steps("refused"), ElementsAre(2));
  EXPECT_EQ(events("refused").front().at("reason"), "torn");
  EXPECT_TRUE(events("validation")[1].at("loss").is_null());
  EXPECT_EQ(events("validation")[1].at("best"), false);
  EXPECT_THAT(best().steps(), ElementsAre(4));
}

TEST_F(CheckpointEvaluatorTest, AFolderWithMoreOrLessThanItsCheckpointDoesNotStopIt) {
  for (const std::int64_t step : {1, 2, 3}) save(step);
  const CheckpointFolder checkpoints(local_file_system(), run_->checkpoint());
  fs::create_directory(checkpoints.path_of(1) + "/.ipynb_checkpoints");
  fs::remove(checkpoints.path_of(2) + "/manifest.json");
  evaluate();
  EXPECT_THAT(steps("validation"), ElementsAre(1, 3));
  ASSERT_THAT(steps("refused"), ElementsAre(2));
  EXPECT_THAT(std::string(events("refused").front().at("reason")), HasSubstr("manifest.json"));
}

TEST_F(CheckpointEvaluatorTest, AfterTheEndAShortTimeIsLeftForTheNewestAlone) {
  save(1);
  ended_ = [this] { return saved_ == 4; };
  during_ = [this](std::int64_t step) {
    waiter_->pass(std::chrono::minutes(10));
    for (std::int64_t next = 2; step == 1 && next <= 4; ++next) save(saved_ = next);
  };
  evaluate();  // 15 minutes for three of 10
  EXPECT_THAT(steps("validation"), ElementsAre(1, 4));
  EXPECT_THAT(steps("missed"), ElementsAre(2, 3));
  EXPECT_THAT(said_, HasSubstr("there is only time to evaluate the newest checkpoint"));
}

TEST_F(CheckpointEvaluatorTest, ARunThatWasTakenBackIsEvaluatedAgainFromThere) {
  train(5);
  evaluate();
  ASSERT_THAT(best().steps(), ElementsAre(4));
  const CheckpointFolder checkpoints(local_file_system(), run_->checkpoint());
  checkpoints.remove(5);
  checkpoints.remove(4);
  loss_ = [](std::int64_t step) { return step == 4 ? 3.5 : 2.0; };
  saved_ = 3;
  evaluate();
  EXPECT_THAT(steps("validation"), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(events("validation")[3].at("loss"), 3.5);
  EXPECT_THAT(best().steps(), ElementsAre(3));  // with a loss of 1
}

TEST_F(CheckpointEvaluatorTest, AfterADeathAtAnyPointTheBestIsWholeAndNamedByTheEvents) {
  for (const std::int64_t step : {1, 2, 3}) save(step);
  int points = 0;
  for (int at = 0;; ++at, ++points) {
    fs::remove_all(run_->best());
    fs::remove_all(run_->evaluating());
    fs::remove(run_->evaluations());
    const auto storage = std::make_shared<FaultyFileSystem>(FaultyFileSystem::Fault::Crash, at);
    try {
      CheckpointEvaluator(*run_, options(), storage).run();
      if (storage->num_acts() <= at) break;
    } catch (const storage::Crashed&) {
    }
    const auto found = EvaluationRecord(*run_).best();
    if (found) {
      EXPECT_THAT(best().steps(), ElementsAre(found->step)) << at;
      best().verify(found->step);
      EXPECT_EQ(found->loss, loss_(found->step));
    } else {
      EXPECT_THAT(best().steps(), IsEmpty()) << at;
    }
    evaluate();
    EXPECT_THAT(steps("validation"), ElementsAre(1, 2, 3)) << at;
    EXPECT_THAT(best().steps(), ElementsAre(3)) << at;
  }
  EXPECT_GT(points, 40);
}

TEST_F(CheckpointEvaluatorTest, AStorageThatIsAwayForAWhileAtAnyPointIsWaitedFor) {
  for (const std::int64_t step : {1, 2}) save(step);
  int points = 0;
  for (int at = 0;; ++at, ++points) {
    SCOPED_TRACE(at);
    fs::remove_all(run_->best());
    fs::remove(run_->evaluations());
    said_.clear();
    const bool away = evaluate_without_storage(at, std::chrono::minutes(2));
    EXPECT_THAT(steps("validation"), ElementsAre(1, 2));
    EXPECT_THAT(steps("missed"), IsEmpty());
    EXPECT_THAT(best().steps(), ElementsAre(2));
    best().verify(2);
    EXPECT_FALSE(fs::exists(run_->evaluating()));
    if (!away) break;
    EXPECT_THAT(said_, HasSubstr("the evaluator waits: the storage is away. It tries again, and "
                                 "ends if that lasts for 10 min (checkpoint.patience)\n"));
    EXPECT_EQ(said_.find("waits"), said_.rfind("waits")) << "one line: " << said_;
    EXPECT_THAT(said_, HasSubstr("the evaluator goes on; the storage had failed for 2 min"));
  }
  EXPECT_GT(points, 40);
}

TEST_F(CheckpointEvaluatorTest, AStorageThatStaysAwayEndsItAfterItsPatience) {
  for (const std::int64_t step : {1, 2}) save(step);
  for (const int at : {0, 20}) {
    const TimePoint began = waiter_->now();
    EXPECT_THROW(evaluate_without_storage(at, std::chrono::hours(9)), ResourceError);
    EXPECT_EQ(waiter_->now() - began, std::chrono::minutes(10));
  }
}

TEST_F(CheckpointEvaluatorTest, AStopEndsTheWaitForAStorageWithoutAnError) {
  save(1);
  int waits = 0;
  waiter_->turn = [&] { ++waits; };
  stopped_ = [&] { return waits > 3; };
  EXPECT_TRUE(evaluate_without_storage(0, std::chrono::hours(9)));
  EXPECT_EQ(waits, 4);
}

// This process hung for so long that another evaluator counts it as gone.
TEST_F(CheckpointEvaluatorTest, WhatAnotherEvaluatorHasTakenOverIsLeftToIt) {
  for (const std::int64_t step : {1, 2}) save(step);
  observe::LockHolder other = observe::LockHolder::this_process();
  other.host = "elsewhere";
  during_ = [&](std::int64_t step) {
    if (step == 1) return;
    std::ofstream(run_->best() + "/" + std::string(observe::kLockFile)) << other.to_text();
    throw CheckpointError("the other evaluator has removed RUN/evaluating", {});
  };
  EXPECT_THROW(evaluate(), ConfigError);
  EXPECT_THAT(steps("validation"), ElementsAre(1));
  EXPECT_THAT(steps("refused"), IsEmpty());
  EXPECT_TRUE(fs::exists(run_->evaluating()));
}

TEST_F(CheckpointEvaluatorTest, ARecordWithLinesOfOthersIsRead) {
  save(1);
  save(2);
  std::ofstream(run_->evaluations()) << "{\"event\":7,\"step\":1,\"loss\":0}\nno event\n";
  evaluate();
  EXPECT_THAT(best().steps(), ElementsAre(2));
}

TEST_F(CheckpointEvaluatorTest, ARunWithoutCheckpointsIsSaidToHaveNone) {
  train(0);
  evaluate();
  EXPECT_EQ(said_, "no checkpoint of " + run_->path() + " was evaluated\n");
}

TEST_F(CheckpointEvaluatorTest, ASecondEvaluatorIsRefusedAndSoIsABestThatBecameARun) {
  const auto refusal = [&] {
    try {
      EvaluationRecord again(*run_);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  {
    const EvaluationRecord first(*run_);
    EXPECT_THAT(refusal(), HasSubstr("is in use by"));
  }
  std::ofstream(RunFolder(run_->best()).events()) << "\n";
  EXPECT_THAT(refusal(), HasSubstr("was continued as a run of its own"));
}

}  // namespace
}  // namespace trireme::checkpoint_evaluator_test
