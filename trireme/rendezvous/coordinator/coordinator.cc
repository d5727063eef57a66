#include "trireme/rendezvous/coordinator/coordinator.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <chrono>
#include <utility>

#include "trireme/net/endpoint.h"
#include "trireme/rendezvous/coordinator/coordinator_service.h"
#include "trireme/rendezvous/coordinator/door.h"
#include "trireme/rendezvous/launchers/room.h"

namespace trireme::inline v0::rendezvous {

constexpr int kLargestMessage = 1 << 20;

struct Coordinator::Impl {
  explicit Impl(CoordinatorOptions options)
      : service(std::move(options)), door(listener(), service.options().secret) {}
  std::shared_ptr<net::Listener> listener() {
    const CoordinatorOptions& options = service.options();
    if (options.listener) return options.listener;
    return std::make_shared<net::Listener>(listen(options.address, options.port));
  }
  LockedState state() { return service.state(); }
  Service service;
  Door door;
  std::unique_ptr<grpc::Server> server;
  JobSnapshot found;
};

Coordinator::Coordinator(CoordinatorOptions options) {
  if (!net::is_loopback(options.address) && options.secret.empty()) {
    throw ConfigError("a coordinator on " + options.address + " needs a job secret",
                      {.operation = "launch",
                       .advice = "Set TRIREME_JOB_SECRET_FILE to a file that only you may read, or "
                                 "listen on 127.0.0.1."});
  }
  if (options.secret.size() < 16) {
    throw ConfigError("a job secret has at least 16 bytes",
                      {.operation = "launch", .advice = "Make one by `openssl rand -hex 32`."});
  }
  require_room_for_grpc();
  impl_ = std::make_unique<Impl>(std::move(options));
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kLargestMessage);
  builder.RegisterService(&impl_->service);
  impl_->server = builder.BuildAndStart();
  if (!impl_->server)
    throw ResourceError(
        "gRPC could not start",
        {.operation = "launch", .advice = "Raise the limits on processes and open files."});
  impl_->found = snapshot();
  impl_->door.open([server = impl_->server.get()](Descriptor guest) {
    grpc::AddInsecureChannelFromFd(server, guest.release());
  });
}

Coordinator::~Coordinator() { close(); }

void Coordinator::close() {
  impl_->door.close();
  impl_->service.close();
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  impl_->server->Wait();
}

const std::string& Coordinator::endpoint() const noexcept { return impl_->door.endpoint(); }

void Coordinator::set_process(int rank, pid_t pid) {
  impl_->state()->members.set_process(rank, pid, steady_now());
}

void Coordinator::end(int rank) {
  const LockedState state = impl_->state();
  const bool left = state->members.phase(rank) == Phase::Left;
  state->members.end(rank);
  if (!left) state->gone(rank, state->roles().name_of(rank) + " has ended");
}

void Coordinator::fail(Failure failure) { impl_->state()->record(std::move(failure)); }

void Coordinator::announce_failure() { impl_->state()->announce(); }

std::optional<Failure> Coordinator::first_failure() const {
  return impl_->state()->members.first_failure();
}

std::optional<ServerView> Coordinator::lose_server(int server) {
  return impl_->state()->lose_server(server);
}

bool Coordinator::trains_alone(int worker) const {
  return impl_->state()->servers.trains_alone(worker);
}

int Coordinator::workers_needed() const { return impl_->state()->servers.workers_needed(); }

bool Coordinator::lose_worker(int worker) { return impl_->state()->lose_worker(worker); }

void Coordinator::regroup(const Epoch& epoch) { impl_->state()->regroup(epoch); }

bool Coordinator::has_met() const {
  const LockedState state = impl_->state();
  return state->exchanges.has_completed(state->epoch().members);
}

JobSnapshot Coordinator::snapshot() const {
  const LockedState state = impl_->state();
  const Roles& roles = state->roles();
  const TrainingEnd& end = state->end();
  JobSnapshot now{.epoch = state->epoch(), .finished = end.all};
  if (end.all || end.workers) now.ended_with = end.exit_code;
  for (int process = 0; process < state->members.size(); ++process) {
    const Phase phase = state->members.phase(process);
    if (phase == Phase::Joined) {
      now.joined.push_back(process);
      if (!state->streams.reaches(process)) now.unreached.push_back(process);
    }
    if (phase == Phase::Left) now.left[process] = state->members.exit_code(process);
    if (phase == Phase::Absent && process < roles.workers + roles.servers)
      now.absent.push_back(process);
  }
  return now;
}

const JobSnapshot& Coordinator::found() const noexcept { return impl_->found; }

void Coordinator::clear_store() { impl_->state()->saver.clear(); }

void Coordinator::reset_server(int server) { impl_->state()->reset_server(server); }

void Coordinator::forget(int process) { impl_->state()->forget(process); }

std::vector<int> Coordinator::silent(Duration silence) const {
  return impl_->state()->members.silent(silence, steady_now());
}

void Coordinator::request_stop(int signal) { impl_->state()->stop(signal); }

void Coordinator::finish() { finish(0); }

void Coordinator::finish(int exit_code, bool workers_only) {
  impl_->state()->finish(workers_only, exit_code);
}

void Coordinator::forgive_silence() { impl_->state()->members.forgive(steady_now()); }

bool Coordinator::awaits_workers(Duration silence) const {
  const LockedState state = impl_->state();
  return state->members.awaits(0, state->roles().workers, silence, steady_now());
}

bool Coordinator::awaits_others(Duration silence) const {
  const LockedState state = impl_->state();
  const Roles& roles = state->roles();
  return state->members.awaits(roles.workers, roles.processes(), silence, steady_now());
}

}  // namespace trireme::inline v0::rendezvous
