// Processes that a TFJob starts, with the very TF_CONFIG that its operator writes: a chief, workers,
// parameter servers and an evaluator, whom the operator leaves out of the cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "tests/cli/command.h"
#include "tests/cli/standing.h"

namespace trireme::testing::tfjob_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Task {
  std::string type;
  int index = 0;
};

class TFJob : public ::testing::Test {
 protected:
  // Rank 0 is at an address of this host; nobody looks up the names of the others.
  std::string cluster(bool chief, int workers, int servers) const {
    const auto list = [&](const std::string& type, int count) {
      std::string text;
      for (int i = 0; i < count; ++i) {
        const bool first = type == "chief" || (!chief && type == "worker" && i == 0);
        const std::string host =
            first ? "127.0.0.1" : "tiny-" + type + "-" + std::to_string(i) + ".default.svc";
        text += (i > 0 ? ",\"" : "\"") + host + ":" + std::to_string(port_) + "\"";
      }
      return count == 0 ? text : ",\"" + type + "\":[" + text + "]";
    };
    return (list("chief", chief ? 1 : 0) + list("worker", workers) + list("ps", servers)).substr(1);
  }
  static std::string config_of(const std::string& cluster, const Task& task) {
    return R"({"cluster":{)" + cluster + R"(},"task":{"type":")" + task.type + R"(","index":)" +
           std::to_string(task.index) + R"(},"environment":"cloud"})";
  }
  Command command(const std::string& cluster, const Task& task,
                  std::vector<std::string> arguments) const {
    return trireme_command(std::move(arguments))
        .in(folder_.path())
        .with("TF_CONFIG", config_of(cluster, task))
        .with("TRIREME_HOST", "tiny-" + task.type + "-" + std::to_string(task.index))
        .with("TRIREME_JOB_SECRET_FILE", secret_);
  }
  std::string hash(const std::string& run) const { return hash_of_run(folder_.file(run)); }

  Folder folder_;
  const int port_ = 15'000 + getpid() % 15'000;
  const std::string secret_ = [this] {
    const std::string path = folder_.write("secret", "a secret of this job alone");
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    return path;
  }();
};

TEST_F(TFJob, TrainsTheWeightsOfTrireme) {
  const std::string config =
      tiny_config(folder_, "steps = 40\nvalidate_every = 0\n[checkpoint]\nevery = 10\n");
  const CommandResult alone =
      trireme_command({"train", config, "--ranks", "2", "--servers", "1", "--out", "alone"})
          .in(folder_.path())
          .run();
  ASSERT_EQ(alone.code, 0) << alone.out << alone.err;
  const std::string place = cluster(false, 2, 1);
  std::vector<std::unique_ptr<Command::Running>> running;
  // The evaluator is the first to come.
  for (const Task& task : {Task{"evaluator"}, {"ps"}, {"worker", 1}, {"worker"}})
    running.emplace_back(new Command::Running(
        command(place, task, {"train", config, "--out", "run", "--resume", "auto"}).start()));
  CommandResult last;
  for (std::size_t i = running.size(); i-- > 0;) {
    last = running[i]->wait_beside_others(120);
    EXPECT_EQ(last.code, 0) << i << ": " << last.out << last.err;
  }
  EXPECT_EQ(hash("run"), hash("alone"));
  EXPECT_THAT(last.err, HasSubstr("step 40")) << "the evaluator";
  EXPECT_TRUE(fs::exists(folder_.file("run/best")));
}

// The training is over before the evaluator's pod has started.
TEST_F(TFJob, AnEvaluatorThatComesTooLateEvaluatesWhatIsThere) {
  const std::string config =
      tiny_config(folder_, "steps = 6\nvalidate_every = 0\n[checkpoint]\nevery = 2\n");
  const std::string place = cluster(false, 2, 0);
  const std::vector<std::string> train = {"train",    config, "--out", "run",
                                          "--resume", "auto", "--set", "timeout=5"};
  auto one = command(place, {"worker", 1}, train).start();
  auto zero = command(place, {"worker"}, train).start();
  for (auto* worker : {&zero, &one}) {
    const CommandResult done = worker->wait_beside_others(120);
    ASSERT_EQ(done.code, 0) << done.out << done.err;
  }
  const CommandResult late = command(place, {"evaluator"}, train).run(120);
  EXPECT_EQ(late.code, 0) << late.out << late.err;
  EXPECT_THAT(late.err, AllOf(HasSubstr("has ended after step 6, before its evaluator came"),
                              HasSubstr("evaluation after step 6: loss"),
                              HasSubstr("the best of 3 evaluated checkpoints")));
  EXPECT_TRUE(fs::exists(folder_.file("run/best")));
}

TEST_F(TFJob, AChiefIsRankZero) {
  const std::string config = tiny_config(folder_, "steps = 6\nvalidate_every = 0\n");
  const CommandResult alone =
      trireme_command({"train", config, "--ranks", "2", "--out", "alone"}).in(folder_.path()).run();
  ASSERT_EQ(alone.code, 0) << alone.out << alone.err;
  const std::string place = cluster(true, 1, 0);
  auto worker = command(place, {"worker"}, {"train", config, "--out", "run"}).start();
  auto chief = command(place, {"chief"}, {"train", config, "--out", "run"}).start();
  const CommandResult zero = chief.wait_beside_others(120), one = worker.wait_beside_others(120);
  EXPECT_EQ(zero.code, 0) << zero.out << zero.err;
  EXPECT_EQ(one.code, 0) << one.out << one.err;
  EXPECT_THAT(zero.out, HasSubstr("step 6 of 6"));
  EXPECT_EQ(hash("run"), hash("alone"));
}

TEST_F(TFJob, WhatContradictsItIsRefused) {
  const std::string config = tiny_config(folder_, "steps = 6\n");
  const auto refusal = [&](const Task& task, std::vector<std::string> more, int servers = 1) {
    std::vector<std::string> words = {"train", config};
    words.insert(words.end(), more.begin(), more.end());
    // It waits this long for the others, whom it tells; by default 30 s.
    const CommandResult result =
        command(cluster(false, 2, servers), task, words).with("TRIREME_TIMEOUT", "1").run();
    EXPECT_THAT(result.err, Not(HasSubstr("(16 s so far)")));
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({"worker"}, {"--ranks", "3"}), HasSubstr("--ranks 3, but TFJob started 2"));
  EXPECT_THAT(refusal({"worker"}, {"--servers", "2"}),
              HasSubstr("--servers 2, but TFJob started 1"));
  EXPECT_THAT(refusal({"worker"}, {"--set", "parallel.sync=zero1"}),
              HasSubstr("TFJob started 1 server, but parallel.sync = \"zero1\""));
  EXPECT_THAT(refusal({"worker"}, {"--set", "parallel.sync=server"}, 0),
              HasSubstr("takes 1 server, but TFJob started 0"));
  EXPECT_THAT(refusal({"evaluator"}, {}), HasSubstr("does not know the run's folder"));
  EXPECT_THAT(refusal({"ps", 1}, {}),
              AllOf(HasSubstr("1 at /task/index"), HasSubstr("/cluster/ps has 1 entries")));
}

// With enableDynamicWorker: two servers, each with a copy of the other's shard, and workers that come and go.
class DynamicTFJob : public Standing {
 protected:
  // As the operator's convertClusterSpecToSparseClusterSpec. Server 0 is at an address of this host.
  std::string config_of(const Task& task) const {
    const auto name = [](const Task& of) {
      return "\"tiny-" + of.type + "-" + std::to_string(of.index) + ".default.svc:2222\"";
    };
    const std::string first = "\"" + endpoint_ + "\"", number = std::to_string(task.index);
    if (dense_)
      return R"({"cluster":{"worker":[)" + name({"worker", 0}) + "," + name({"worker", 1}) +
             R"(],"ps":[)" + first + "," + name({"ps", 1}) + R"(]},"task":{"type":")" + task.type +
             R"(","index":)" + number + "}}";
    const bool worker = task.type == "worker";
    const std::string workers = worker ? "\"" + number + "\":" + name(task) : "";
    const std::string servers = worker            ? first + "," + name({"ps", 1})
                                : task.index == 0 ? first
                                                  : name(task);
    return R"({"sparseCluster":{"worker":{)" + workers + R"(},"ps":[)" + servers +
           R"(]},"task":{"type":")" + task.type + R"(","index":)" + number + "}}";
  }
  Command pod(const Task& task, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "train", config_,    "--out", "run",   "--store",
        store_,  "--resume", "auto",  "--set", "server.replicas=2"};
    for (const std::string& one : settings_) arguments.insert(arguments.end(), {"--set", one});
    arguments.insert(arguments.end(), more.begin(), more.end());
    Command command = trireme_command(arguments)
                          .in(folder_.path())
                          .with("TF_CONFIG", config_of(task))
                          .with("TRIREME_HOST", "tiny-" + task.type + std::to_string(task.index))
                          .with("TRIREME_LOCAL_SIZE", "2")  // the pods share this host's cores
                          .with("TRIREME_JOB_SECRET_FILE", secret_);
    for (const auto& [variable, value] : variables_) command.with(variable, value);
    if (dense_) return command.with("TRIREME_ELASTIC", "1");
    command.with("TRIREME_WORKERS", "2").with("TRIREME_SERVERS", "2");
    // Nobody here knows the address of tiny-ps-0.default.svc.
    if (task.type == "ps" && task.index > 0) command.with("TRIREME_COORDINATOR", endpoint_);
    return command;
  }
  // Server 0 is the last to come.
  void begin(int workers) {
    for (int i = 0; i < workers; ++i) workers_.push_back(started(pod({"worker", i})));
    one_ = started(pod({"ps", 1}));
    zero_ = started(pod({"ps", 0}));
  }
  // Two workers begin; worker 1 is killed and comes back.
  void begin_and_lose_a_worker() {
    begin(2);
    ASSERT_TRUE(zero_->wait_for("the job begins with 2 ranks", 120))
        << zero_->output() << workers_[0]->output();
    await_steps(50);
    workers_[1]->send(SIGKILL);
    ASSERT_TRUE(zero_->wait_for("the job goes on with 1 rank")) << zero_->output();
    workers_[1] = started(pod({"worker", 1}));
    ASSERT_TRUE(zero_->wait_for("process 1 has come; the job goes on with 2 ranks"))
        << zero_->output();
  }
  // The process of the coordinator beside server 0.
  pid_t coordinator_process() const {
    for (const pid_t child : descendants(zero_->pid()))
      if (read_file("/proc/" + std::to_string(child) + "/cmdline").find("coordinator") !=
          std::string::npos)
        return child;
    ADD_FAILURE() << "no coordinator\n" << zero_->output();
    return -1;
  }

  bool dense_ = false;  // TF_CONFIG names all, as it does without enableDynamicWorker
  std::vector<std::string> settings_;
  std::map<std::string, std::string> variables_;
  std::vector<std::unique_ptr<Running>> workers_;
  std::unique_ptr<Running> zero_, one_;  // servers
};

// A worker is killed, then the coordinator, then server 0 with the coordinator.
TEST_F(DynamicTFJob, GoesOnWithoutEachOfItsPods) {
  ASSERT_NO_FATAL_FAILURE(begin_and_lose_a_worker());
  pid_t coordinator = coordinator_process();
  ASSERT_GT(coordinator, 0);
  kill(coordinator, SIGKILL);
  ASSERT_TRUE(zero_->wait_for("the coordinator was killed by signal 9")) << zero_->output();
  ASSERT_TRUE(workers_[0]->wait_for("the coordinator is back")) << workers_[0]->output();
  ASSERT_TRUE(zero_->wait_for("goes on with the job in")) << zero_->output();
  coordinator = coordinator_process();
  ASSERT_GT(coordinator, 0);
  zero_->send(SIGKILL);
  end_of(*zero_);
  // It is this process's child now. It ends with server 0's pod, and so leaves port and store.
  ASSERT_EQ(waitpid(coordinator, nullptr, 0), coordinator);
  zero_ = started(pod({"ps", 0}));
  ASSERT_TRUE(zero_->wait_for("server 0 is back, with a copy of shard", 120)) << zero_->output();
  await(*workers_[0], "the coordinator is back", 2);
  expect_done({workers_[0].get(), workers_[1].get(), zero_.get(), one_.get()});
}

// The pods of a job of fixed size, too, with TRIREME_ELASTIC. A worker is killed, then server 1.
TEST_F(DynamicTFJob, WhoseNumberOfWorkersIsFixedGoesOnWithoutItsPods) {
  dense_ = true;
  ASSERT_NO_FATAL_FAILURE(begin_and_lose_a_worker());
  one_->send(SIGKILL);
  end_of(*one_);
  one_ = started(pod({"ps", 1}));
  ASSERT_TRUE(zero_->wait_for("server 1 is back, with a copy of shard", 120)) << zero_->output();
  expect_done({workers_[0].get(), workers_[1].get(), zero_.get(), one_.get()});
}

// Each takes its part of a batch of two workers, also a third one.
TEST_F(DynamicTFJob, HasWorkersOnTheirOwn) {
  settings_ = {"server.staleness=-1", "train.steps=400", "train.validate_every=100", "timeout=5"};
  variables_ = {{"TRIREME_ELASTIC", "workers"}, {"TRIREME_MORE_WORKERS", "1"}};
  begin(3);
  for (Running* one :
       {workers_[0].get(), workers_[1].get(), workers_[2].get(), zero_.get(), one_.get()})
    EXPECT_EQ(end_of(*one).code, 0) << one->output();
  EXPECT_THAT(read_file(folder_.file("run/checkpoint/latest")), HasSubstr("400"));
  EXPECT_THAT(pod({"worker", 1}).run().err, HasSubstr("nothing is left to do"));
}

TEST_F(DynamicTFJob, RefusesWhatContradictsItsVariables) {
  const auto refusal = [&](const Task& task, const std::vector<std::string>& more) {
    const CommandResult result = pod(task, more).run();
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({"worker"}, {"--set", "server.staleness=4"}),
              HasSubstr("Set TRIREME_ELASTIC=workers in all pods"));
  EXPECT_THAT(refusal({"ps"}, {"--elastic", "1:3"}),
              HasSubstr("elastic.max = 3, but by TRIREME_WORKERS at most 2 workers may be there"));
  store_ = folder_.file("nowhere");
  EXPECT_THAT(refusal({"ps"}, {}), HasSubstr(store_ + " is no folder"));
}

}  // namespace
}  // namespace trireme::testing::tfjob_test
