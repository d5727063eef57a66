// Training jobs whose processes the test kills.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"

namespace trireme::testing {

class FailOver : public ::testing::Test {
 protected:
  // With two ranks and parameter servers.
  Command train(const std::string& config, const std::string& run,
                const std::vector<std::string>& settings) const {
    std::vector<std::string> arguments = {"train", config, "--ranks", "2", "--out", run};
    for (const std::string& one : settings) arguments.insert(arguments.end(), {"--set", one});
    return trireme_command(arguments).in(folder_.path());
  }
  std::string hash(const std::string& run) const { return hash_of_run(folder_.file(run)); }
  // The weights of one process that nobody disturbs, after as many steps with a constant rate. This program
  // trains it once.
  static std::string undisturbed_hash(int steps) {
    static std::map<int, std::string> known;
    std::string& hash = known[steps];
    if (hash.empty()) {
      const Folder folder;
      const std::string config = tiny_config(
          folder, "validate_every = 0\nschedule = \"constant\"\nsteps = " + std::to_string(steps));
      const CommandResult result = trireme_command({"train", config, "--out", "run"})
                                       .in(folder.path())
                                       .start()
                                       .wait_beside_others();
      EXPECT_EQ(result.code, 0) << result.out << result.err;
      hash = hash_of_run(folder.file("run"));
    }
    return hash;
  }

  static void kill_process(const Command::Running& running, const std::string& role, int number) {
    signal_process(running, role, number, SIGKILL);
  }
  static void signal_process(const Command::Running& running, const std::string& role, int number,
                             int signal) {
    for (const pid_t child : descendants(running.pid()))
      if (environment_of(child, "TRIREME_ROLE") == role &&
          environment_of(child, "TRIREME_RANK") == std::to_string(number)) {
        kill(child, signal);
        return;
      }
    ADD_FAILURE() << "no " << role << " " << number << "\n" << running.output();
  }
  static int times(const std::string& text, const std::string& part) {
    int count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++count;
    return count;
  }
  // Waits until the output has a text for the n-th time.
  static void await(Command::Running& running, const std::string& text, int n) {
    ASSERT_TRUE(eventually([&] { return times(running.output(), text) >= n; })) << text << "\n"
                                                                                << running.output();
  }
  std::vector<double> step_seconds(const std::string& run) const {
    std::vector<double> all;
    std::ifstream events(folder_.file(run + "/events.jsonl"));
    for (std::string line; std::getline(events, line);) {
      const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (event.is_object() && event.value("event", "") == "step")
        all.push_back(event.at("step_seconds"));
    }
    return all;
  }
  // The newest `servers` event of the run; null if there is none yet.
  nlohmann::json last_servers_event() const {
    nlohmann::json last;
    std::ifstream events(folder_.file("run/events.jsonl"));
    for (std::string line; std::getline(events, line);) {
      auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (event.is_object() && event.value("event", "") == "servers") last = std::move(event);
    }
    return last;
  }
  std::int64_t pushes_of(std::size_t worker) const {
    const nlohmann::json event = last_servers_event();
    if (!event.is_object() || event.at("pushes").size() <= worker) return 0;
    return event.at("pushes").at(worker);
  }
  // Waits until a worker has pushed more than `before` gradients.
  void await_pushes(Command::Running& running, std::size_t worker, std::int64_t before = 0) const {
    ASSERT_TRUE(eventually([&] { return pushes_of(worker) > before; })) << running.output();
  }
  Folder folder_;
};

}  // namespace trireme::testing
