#include "trireme/rendezvous/coordinator.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/net/endpoint.h"
#include "trireme/rendezvous/coordinator_service.h"
#include "trireme/rendezvous/door.h"
#include "trireme/rendezvous/room.h"

namespace trireme::inline v0::rendezvous {
namespace {

constexpr int kLargestMessage = 1 << 20;

}  // namespace

struct Coordinator::Impl {
  explicit Impl(CoordinatorOptions options)
      : service(std::move(options)),
        door(service.options_.listener ? service.options_.listener
                                       : std::make_shared<net::Listener>(listen(
                                             service.options_.address, service.options_.port)),
             service.options_.secret) {}
  Service service;
  Door door;
  std::unique_ptr<grpc::Server> server;
};

Coordinator::Coordinator(CoordinatorOptions options) {
  if (!net::is_loopback(options.address) && options.secret.empty()) {
    throw ConfigError("a coordinator on " + options.address + " needs a job secret",
                      {.operation = "launch",
                       .advice = "Set TRIREME_JOB_SECRET_FILE to a file that only you may read, or "
                                 "listen on 127.0.0.1."});
  }
  if (options.secret.size() < 16) {
    throw ConfigError("a job secret has at least 16 bytes", {.operation = "launch"});
  }
  require_room_for_grpc();
  impl_ = std::make_unique<Impl>(std::move(options));
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kLargestMessage);
  builder.RegisterService(&impl_->service);
  impl_->server = builder.BuildAndStart();
  if (!impl_->server) throw ResourceError("gRPC could not start", {.operation = "launch"});
  impl_->door.open([server = impl_->server.get()](net::Descriptor guest) {
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
  std::lock_guard lock(impl_->service.mutex_);
  impl_->service.members_.set_process(rank, pid, steady_now());
}

void Coordinator::end(int rank) {
  std::lock_guard lock(impl_->service.mutex_);
  const bool left = impl_->service.members_.phase(rank) == Phase::Left;
  impl_->service.members_.end(rank);
  if (!left)
    impl_->service.gone(rank, impl_->service.members_.roles().name_of(rank) + " has ended");
}

void Coordinator::fail(Failure failure) {
  std::lock_guard lock(impl_->service.mutex_);
  impl_->service.record(std::move(failure));
}

void Coordinator::announce_failure() {
  std::lock_guard lock(impl_->service.mutex_);
  impl_->service.announce();
}

std::optional<Failure> Coordinator::first_failure() const {
  std::lock_guard lock(impl_->service.mutex_);
  return impl_->service.members_.first_failure();
}

std::optional<ServerView> Coordinator::lose_server(int server) {
  std::lock_guard lock(impl_->service.mutex_);
  return impl_->service.lose_server(server);
}

bool Coordinator::trains_alone(int worker) const {
  std::lock_guard lock(impl_->service.mutex_);
  return impl_->service.trains_alone(worker);
}

bool Coordinator::lose_worker(int worker) {
  std::lock_guard lock(impl_->service.mutex_);
  return impl_->service.lose_worker(worker);
}

void Coordinator::regroup(const Epoch& epoch) {
  std::lock_guard lock(impl_->service.mutex_);
  impl_->service.regroup(epoch);
}

Epoch Coordinator::epoch() const {
  std::lock_guard lock(impl_->service.mutex_);
  return impl_->service.epoch();
}

std::vector<int> Coordinator::joined() const {
  std::lock_guard lock(impl_->service.mutex_);
  std::vector<int> all;
  for (int process = 0; process < impl_->service.members_.size(); ++process)
    if (impl_->service.members_.phase(process) == Phase::Joined) all.push_back(process);
  return all;
}

std::vector<int> Coordinator::unreached() const {
  std::vector<int> all = joined();
  std::lock_guard lock(impl_->service.mutex_);
  std::erase_if(all, [&](int process) { return impl_->service.reaches(process); });
  return all;
}

bool Coordinator::finished() const {
  std::lock_guard lock(impl_->service.mutex_);
  return impl_->service.finished();
}

bool Coordinator::training_ended() const {
  std::lock_guard lock(impl_->service.mutex_);
  return impl_->service.training_ended();
}

void Coordinator::clear_store() {
  std::lock_guard lock(impl_->service.mutex_);
  impl_->service.clear_store();
}

void Coordinator::reset_server(int server) {
  std::lock_guard lock(impl_->service.mutex_);
  impl_->service.reset_server(server);
}

void Coordinator::forget(int process) {
  std::lock_guard lock(impl_->service.mutex_);
  impl_->service.forget(process);
}

std::vector<int> Coordinator::silent(Duration silence) const {
  std::lock_guard lock(impl_->service.mutex_);
  return impl_->service.members_.silent(silence, steady_now());
}

void Coordinator::request_stop(int signal) { impl_->service.stop(signal); }

void Coordinator::finish() { impl_->service.finish(); }

void Coordinator::finish_workers() { impl_->service.finish(/*workers_only=*/true); }

void Coordinator::forgive_silence() {
  std::lock_guard lock(impl_->service.mutex_);
  impl_->service.members_.forgive(steady_now());
}

bool Coordinator::awaits_workers(Duration silence) const {
  std::lock_guard lock(impl_->service.mutex_);
  const Roles& roles = impl_->service.members_.roles();
  return impl_->service.members_.awaits(0, roles.workers, silence, steady_now());
}

bool Coordinator::awaits_others(Duration silence) const {
  std::lock_guard lock(impl_->service.mutex_);
  const Roles& roles = impl_->service.members_.roles();
  return impl_->service.members_.awaits(roles.workers, roles.processes(), silence, steady_now());
}

std::vector<int> Coordinator::absent() const {
  std::vector<int> all;
  std::lock_guard lock(impl_->service.mutex_);
  const Roles& roles = impl_->service.members_.roles();
  for (int process = 0; process < roles.workers + roles.servers; ++process)
    if (impl_->service.members_.phase(process) == Phase::Absent) all.push_back(process);
  return all;
}

bool Coordinator::has_joined(int rank) const {
  std::lock_guard lock(impl_->service.mutex_);
  return impl_->service.members_.phase(rank) != Phase::Absent;
}

}  // namespace trireme::inline v0::rendezvous
