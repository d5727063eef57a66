// The coordinator's gRPC service: one method per call of coordinator.proto, which a thread of the
// service serves one after the other, and one lock for all state. gRPC's own threads must not wait for
// a store: connections, also that to etcd, may need the thread that waits.
// Only for .cc files of rendezvous (gRPC's headers cost 2.7 s per file).
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/work_thread.h"
#include "trireme/rendezvous/coordinator.grpc.pb.h"
#include "trireme/rendezvous/coordinator.h"
#include "trireme/rendezvous/secret.h"
#include "trireme/rendezvous/watcher.h"
#include "trireme/rendezvous/wire_convert.h"

namespace trireme::inline v0::rendezvous {

/// The processes that take part in an exchange.
struct Group {
  std::vector<int> members;  // ascending
  bool has(int process) const {
    return std::binary_search(members.begin(), members.end(), process);
  }
};

struct PendingExchange {
  Group group;
  std::map<int, std::string> values;
  std::map<int, std::pair<grpc::ServerUnaryReactor*, wire::ExchangeReply*>> waiting;

  bool awaits(int process) const { return group.has(process) && values.count(process) == 0; }
  /// Answers all waiting calls with ABORTED.
  void fail(const std::string& why);
};

using ExchangeKey = std::pair<std::string, std::vector<int>>;  // the key and the group
using Exchanges = std::map<ExchangeKey, PendingExchange>;

class Service final : public wire::Coordinator::CallbackService {
 public:
  explicit Service(CoordinatorOptions options)
      : options_(std::move(options)),
        members_(options_.roles()),
        tokens_(static_cast<std::size_t>(members_.size())),
        watches_(tokens_.size()),
        next_stream_(tokens_.size()),
        latest_stream_(tokens_.size()),
        servers_(options_.servers) {
    if (options_.version.empty()) options_.version = kWireVersion;
    if (elastic()) adopt(*options_.elastic);
    if (options_.store) restore();
  }

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const wire::JoinRequest* request, wire::JoinReply* reply) override;
  grpc::ServerUnaryReactor* Exchange(grpc::CallbackServerContext* context,
                                     const wire::ExchangeRequest* request,
                                     wire::ExchangeReply* reply) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const wire::HeartbeatRequest* request,
                                      wire::HeartbeatReply* reply) override;
  grpc::ServerWriteReactor<wire::News>* Watch(grpc::CallbackServerContext* context,
                                              const wire::WatchRequest* request) override;
  grpc::ServerUnaryReactor* StopWatching(grpc::CallbackServerContext* context,
                                         const wire::WatchRequest* request,
                                         wire::Empty* reply) override;
  grpc::ServerUnaryReactor* ReportFailure(grpc::CallbackServerContext* context,
                                          const wire::FailureReport* request,
                                          wire::Empty* reply) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const wire::LeaveRequest* request, wire::Empty* reply) override;
  grpc::ServerUnaryReactor* TellOfServers(grpc::CallbackServerContext* context,
                                          const wire::ServerNews* request,
                                          wire::ServerViewReply* reply) override;

  bool record(Failure failure);
  void announce();
  void tell_all(const wire::News& news);
  bool is_finished_for(int process) const {
    return finished_ || (workers_finished_ && members_.roles().role_of(process) == Role::Worker);
  }
  void stop(int signal);
  void finish(bool workers_only = false);
  void gone(int rank, const std::string& why);
  std::optional<ServerView> lose_server(int server);
  void reset_server(int server);
  bool trains_alone(int worker) const { return alone_.contains(worker); }
  bool lose_worker(int worker);
  void regroup(const Epoch& epoch);
  void forget(int process);
  void close();
  const Epoch& epoch() const { return epoch_; }
  bool finished() const { return finished_; }
  bool training_ended() const { return finished_ || workers_finished_; }
  bool reaches(int process) const {
    return std::any_of(watchers_.begin(), watchers_.end(),
                       [&](const Watcher* one) { return one->process() == process; });
  }
  void clear_store();
  /// Returns when all calls so far have been served.
  void drain() { worker_.drain(); }

  std::mutex mutex_;
  CoordinatorOptions options_;
  Membership members_;

 private:
  /// Answers the call with what the function returns, on the service's thread.
  template <class F>
  grpc::ServerUnaryReactor* serve(grpc::CallbackServerContext* context, F answer) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    worker_.post([reactor, answer] { reactor->Finish(answer()); });
    return reactor;
  }
  grpc::Status join(const wire::JoinRequest& request, wire::JoinReply& reply);
  void exchange(const wire::ExchangeRequest& request, grpc::ServerUnaryReactor* reactor,
                wire::ExchangeReply* reply);
  grpc::Status report(const wire::FailureReport& request);
  grpc::Status leave(const wire::LeaveRequest& request);
  grpc::Status tell_of_servers(const wire::ServerNews& request, wire::ServerViewReply& reply);
  // The rank that `session` authenticates, or -1.
  int rank_of(const wire::Session& session) const;
  grpc::Status check_join(const wire::JoinRequest& request) const;
  bool is_out_of_reach(int process);
  std::optional<Group> group_of(const wire::ExchangeRequest& request) const;
  bool elastic() const { return options_.elastic.has_value(); }
  /// Whether the job depends on the process: an elastic one does not on those that wait for a place.
  bool matters(int process) const { return !elastic() || members_.is_member(process); }
  void fail_exchanges(const std::string& why);
  void finish_exchange(Exchanges::iterator entry);
  void adopt(const Epoch& epoch);
  /// Takes over what an earlier coordinator has left in the store (saved_state.cc).
  void restore();
  /// Before anybody is told of a change: puts it into the store, if there is one. False if the store
  /// has failed for good; then nobody is told.
  bool save();
  std::string state_text() const;
  void tell_store_away(bool away);
  bool may_tell(int process, wire::ServerNews::WhatCase what) const;
  std::uint32_t listens(int server, const std::string& address);
  std::optional<int> taken_for_dead(const wire::ServerProcess& process);
  void tell_server_view(std::uint64_t before);
  /// Whether the others can go on without the process.
  bool can_lose(int process) const;
  bool awaits_ended_evaluator(const PendingExchange& pending) const;
  /// Returns the process, in an elastic job, whose watch it is.
  std::optional<int> begin_watch(Watcher* watcher, const wire::WatchRequest& request);
  void on_stream_end(int rank, std::uint32_t stream);

  std::vector<std::string> tokens_;
  std::vector<bool> watches_;               // by rank: the end of its stream means its end
  std::vector<std::uint32_t> next_stream_;  // by rank: the first that it has not announced to stop
  std::vector<std::uint32_t> latest_stream_;  // by rank
  Exchanges exchanges_;
  // With a store: the complete exchanges, of this epoch, since a process may not have its answer.
  std::map<ExchangeKey, std::vector<std::string>> answered_;
  std::set<Watcher*> watchers_;
  std::string broken_;  // why later exchanges fail; empty: they work
  ServerAuthority servers_;
  std::set<int> alone_;  // workers that train on their own
  Epoch epoch_;          // of an elastic job
  int stop_signal_ = 0;
  bool finished_ = false, workers_finished_ = false;
  bool announced_ = false;
  bool store_lost_ = false, store_cleared_ = false;
  WorkThread worker_;  // ends first
};

}  // namespace trireme::inline v0::rendezvous
