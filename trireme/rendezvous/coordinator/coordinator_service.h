// The coordinator's gRPC service, one method per call of coordinator.proto. Its thread serves all
// calls in order: it checks the caller, takes the lock, and changes JobState. gRPC's own threads
// must not wait for a store, because connections (also the one to etcd) may need them. Callbacks of
// CoordinatorOptions are called without the lock, except `on_gone` and `on_store_lost`. Only for
// .cc files of rendezvous (gRPC's headers cost 2.7 s per file).
#pragma once

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <optional>
#include <utility>

#include "trireme/base/work_thread.h"
#include "trireme/rendezvous/coordinator.grpc.pb.h"
#include "trireme/rendezvous/coordinator/job_state.h"

namespace trireme::inline v0::rendezvous {

/// Access to the job's state, under its lock.
class LockedState {
 public:
  LockedState(std::mutex& mutex, JobState& state) : lock_(mutex), state_(state) {}
  JobState* operator->() const noexcept { return &state_; }
  JobState& operator*() const noexcept { return state_; }

 private:
  std::lock_guard<std::mutex> lock_;
  JobState& state_;
};

class Service final : public wire::Coordinator::CallbackService {
 public:
  explicit Service(CoordinatorOptions options) : state_(std::move(options)) {}

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;
  Unary* Join(Context*, const wire::JoinRequest*, wire::JoinReply*) override;
  Unary* Exchange(Context*, const wire::ExchangeRequest*, wire::ExchangeReply*) override;
  Unary* Heartbeat(Context*, const wire::HeartbeatRequest*, wire::HeartbeatReply*) override;
  grpc::ServerWriteReactor<wire::News>* Watch(Context*, const wire::WatchRequest*) override;
  Unary* StopWatching(Context*, const wire::WatchRequest*, wire::Empty*) override;
  Unary* ReportFailure(Context*, const wire::FailureReport*, wire::Empty*) override;
  Unary* Leave(Context*, const wire::LeaveRequest*, wire::Empty*) override;
  Unary* TellOfServers(Context*, const wire::ServerNews*, wire::ServerViewReply*) override;

  /// They never change, so no lock is needed.
  const CoordinatorOptions& options() const noexcept { return state_.options; }
  /// For the launcher, on any thread. Holds the lock to the end of the expression: use it once in
  /// it.
  LockedState state() { return {mutex_, state_}; }
  /// Answers every open call.
  void close() { state()->close(); }
  /// Returns when all earlier calls have been served.
  void drain() { worker_.drain(); }

 private:
  /// Answers the call with what the function returns, on the service's thread.
  Unary* serve(Context* context, auto answer) {
    Unary* reactor = context->DefaultReactor();
    worker_.post([reactor, answer] { reactor->Finish(answer()); });
    return reactor;
  }
  grpc::Status join(const wire::JoinRequest& request, wire::JoinReply& reply);
  void exchange(const wire::ExchangeRequest& request, Unary* reactor, wire::ExchangeReply* reply);
  grpc::Status tell_of_servers(const wire::ServerNews& request, wire::ServerViewReply& reply);
  grpc::Status check_join(const wire::JoinRequest& request) const;
  /// Whether an elastic job may count the process as lost, though it has joined.
  bool is_out_of_reach(int process);
  bool evaluator_has_ended() const;
  /// In an elastic job, returns the process whose stream it is.
  std::optional<int> begin_watch(Watcher* watcher, const wire::WatchRequest& request);
  void on_stream_end(int process, std::uint32_t stream);

  std::mutex mutex_;
  JobState state_;     // under mutex_
  WorkThread worker_;  // ends first
};

}  // namespace trireme::inline v0::rendezvous
