// Trainings whose processes others start, here the test, and `trireme coordinator`.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <memory>

#include "tests/cli/etcd.h"
#include "tests/cli/failover.h"

namespace trireme::testing {

class Standing : public FailOver {
 protected:
  using Running = Command::Running;

  void SetUp() override {
    config_ =
        tiny_config(folder_, "steps = 2500\nvalidate_every = 2500\nschedule = \"constant\"\n");
    secret_ = folder_.write("secret", std::string(64, 's'));
    ASSERT_EQ(::chmod(secret_.c_str(), 0600), 0);
    std::filesystem::create_directory(folder_.file("store"));
    store_ = folder_.file("store");
    endpoint_ = "127.0.0.1:" + std::to_string(free_port());
  }
  Command coordinator(const std::string& range, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"coordinator", "--elastic", range, "--listen",
                                          endpoint_,     "--store",   store_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return trireme_command(arguments).in(folder_.path()).with("TRIREME_JOB_SECRET_FILE", secret_);
  }
  // Process `number` of `size`, whose run is "run".
  Command process(int number, int size, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train", config_, "--out", "run", "--resume", "auto"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return trireme_command(arguments)
        .in(folder_.path())
        .with("TRIREME_JOB_SECRET_FILE", secret_)
        .with("TRIREME_COORDINATOR", endpoint_)
        .with("TRIREME_ELASTIC", "1")
        .with("TRIREME_SIZE", std::to_string(size))
        .with("TRIREME_RANK", std::to_string(number));
  }
  void await_steps(std::size_t steps) const {
    ASSERT_TRUE(eventually([&] { return step_seconds("run").size() >= steps; }, 120))
        << step_seconds("run").size();
  }
  static CommandResult end_of(Running& one) { return one.wait_beside_others(120); }
  void expect_done(const std::vector<Running*>& all) {
    for (Running* one : all) EXPECT_EQ(end_of(*one).code, 0) << one->output();
    expect_undisturbed();
  }
  void expect_undisturbed() {
    EXPECT_EQ(hash("run"), undisturbed_hash(2500));
    EXPECT_EQ(step_seconds("run").size(), 2500u) << "each step once in the events";
  }

  std::string config_, secret_, store_, endpoint_;
};

}  // namespace trireme::testing
