// KeptCoordinator: a job's coordinator in a separate process, started again when it is killed.
//
// The next process reads what ranks rely on (who has joined, the epoch, the servers' copies) from a
// store (rendezvous/coordinator/state_store.h). A CoordinatorKeeper keeps the process running; this
// object turns each call into an order to it (coordinator_orders.h).
// docs/design/041-standing-coordinator.md.
//
// Thread safe. Orders do not wait for the process, except those whose result is needed, or that
// must take effect before a process is started. These also wait for its restart and its store;
// `interrupted` ends the wait, and then they return as if there were nothing to tell.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/launch/coordinator/coordinator_keeper.h"
#include "trireme/launch/coordinator/coordinator_orders.h"
#include "trireme/rendezvous/coordinator/job_control.h"

namespace trireme::inline v0::launch {

class KeptCoordinator final : public rendezvous::JobControl {
 public:
  /// As CoordinatorKeeper's. The callbacks must not call the methods.
  KeptCoordinator(rendezvous::CoordinatorOptions options, KeptOptions kept)
      : roles_(options.roles),
        orders_(kept.interrupted),
        keeper_(std::move(options), std::move(kept), orders_) {}

  void close() override { keeper_.close(); }
  const std::string& endpoint() const noexcept override { return keeper_.endpoint(); }
  void set_process(int rank, pid_t pid) override {
    orders_.drop_about(rank);
    orders_.tell({"process", rank, {"0", std::to_string(pid)}});
  }
  void end(int rank) override { orders_.tell({"end", rank, {"0"}}); }
  void fail(rendezvous::Failure failure) override { orders_.tell(failure); }
  void announce_failure() override { orders_.tell({"announce", -1, {"0"}}); }
  // If the process waits for its store while the job ends, the failures that were told here count.
  std::optional<rendezvous::Failure> first_failure() const override {
    const auto answer = orders_.ask({"first-failure", -1}, /*patience=*/std::chrono::seconds(2));
    return says_more(answer) ? failure_from(*answer, 1) : orders_.first_failure();
  }
  std::optional<rendezvous::ServerView> lose_server(int server) override {
    const auto answer = orders_.ask({"lose-server", server});
    if (!says_more(answer)) return std::nullopt;
    orders_.drop_about(roles_.process_of(Role::Server, server));
    return rendezvous::ServerView::from_text(answer->field(1));
  }
  bool trains_alone(int worker) const override {
    return says_more(orders_.ask({"trains-alone", worker}));
  }
  int workers_needed() const override {
    const auto answer = orders_.ask({"workers-needed", -1});
    return says_more(answer) ? static_cast<int>(answer->number(1)) : 1;
  }
  bool lose_worker(int worker) override {
    const bool lost = says_more(orders_.ask({"lose-worker", worker}));
    if (lost) orders_.drop_about(worker);
    return lost;
  }
  void regroup(const rendezvous::Epoch& epoch) override {
    Message order{"regroup", -1, {"0"}};
    append(order, epoch);
    orders_.ask(std::move(order));
  }
  bool has_met() const override { return says_more(orders_.ask({"has-met", -1})); }
  void forget(int process) override {
    orders_.drop_about(process);
    orders_.ask({"forget", process});
    orders_.forgive_silence_of(process);
  }
  std::vector<int> silent(Duration silence) const override { return orders_.silent(silence); }
  void request_stop(int signal) override {
    orders_.tell({"stop", -1, {"0", std::to_string(signal)}});
  }
  void forgive_silence() override { orders_.forgive_silence(); }
  void finish() override { orders_.tell({"finish", -1, {"0"}}); }

 private:
  // Whether an answer has a field besides its number.
  static bool says_more(const std::optional<Message>& answer) {
    return answer && answer->fields.size() > 1;
  }

  const rendezvous::Roles roles_;
  mutable CoordinatorOrders orders_;
  CoordinatorKeeper keeper_;
};

}  // namespace trireme::inline v0::launch
