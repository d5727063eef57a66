// Listener: a coordinator that only notes what a launcher orders.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/rendezvous/coordinator/job_control.h"

namespace trireme::inline v0::launch {

class Listener final : public rendezvous::JobControl {
 public:
  void close() override {}
  const std::string& endpoint() const noexcept override { return endpoint_; }
  void set_process(int, pid_t) override {}
  void end(int) override {}
  void fail(rendezvous::Failure) override {}
  void announce_failure() override {}
  std::optional<rendezvous::Failure> first_failure() const override { return std::nullopt; }
  std::optional<rendezvous::ServerView> lose_server(int) override { return std::nullopt; }
  bool trains_alone(int) const override { return false; }
  int workers_needed() const override { return needed; }
  bool lose_worker(int) override { return false; }
  void regroup(const rendezvous::Epoch& epoch) override { epochs.push_back(epoch); }
  bool has_met() const override { return met; }
  void forget(int) override {}
  std::vector<int> silent(Duration) const override { return {}; }
  void request_stop(int) override {}
  void forgive_silence() override {}
  void finish() override {}

  std::vector<rendezvous::Epoch> epochs;
  int needed = 1;
  bool met = false;

 private:
  const std::string endpoint_;
};

}  // namespace trireme::inline v0::launch
