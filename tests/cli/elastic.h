// Elastic trainings whose processes the test kills.
#pragma once

#include "tests/cli/failover.h"

namespace trireme::testing {

class Elastic : public FailOver {
 protected:
  Command elastic(int ranks, const std::string& run, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"train", config_,   "--out",
                                          run,     "--ranks", std::to_string(ranks)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return trireme_command(arguments).in(folder_.path());
  }
  void SetUp() override {
    config_ = tiny_config(folder_, "steps = 1500\nvalidate_every = 500\nschedule = \"constant\"\n");
  }
  void expect_undisturbed(const CommandResult& result, const std::string& run) const {
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_EQ(result.left_behind, 0);
    EXPECT_EQ(hash(run), undisturbed_hash(1500));
    EXPECT_EQ(step_seconds(run).size(), 1500u) << "each step once in the events";
  }
  void await_steps(const Command::Running& job, const std::string& run, std::size_t steps) const {
    ASSERT_TRUE(eventually([&] { return step_seconds(run).size() >= steps; })) << job.output();
  }
  // The events of changes of the ranks.
  std::vector<nlohmann::json> changes(const std::string& run) const {
    std::vector<nlohmann::json> all;
    std::ifstream events(folder_.file(run + "/events.jsonl"));
    for (std::string line; std::getline(events, line);)
      if (auto event = nlohmann::json::parse(line); event.value("event", "") == "regrouped")
        all.push_back(std::move(event));
    return all;
  }
  std::string config_;
};

}  // namespace trireme::testing
