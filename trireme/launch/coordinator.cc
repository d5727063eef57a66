#include "trireme/launch/coordinator.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/launch/coordinator.grpc.pb.h"
#include "trireme/launch/secret.h"
#include "trireme/launch/wire_convert.h"

namespace trireme {
inline namespace v0 {
namespace launch {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::Status;
using grpc::StatusCode;

constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kOpenHandshakes = 4096;  // unfinished ones; more are refused
constexpr std::size_t kLongestExchange = 1 << 16;
constexpr int kLargestMessage = 1 << 20;

ServerUnaryReactor* answer(CallbackServerContext* context, const Status& status) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1" || address == "[::1]" ||
         address == "localhost";
}

// One rank's stream of news. Every call comes under the lock of `Service`, reactions take it.
class Watcher final : public grpc::ServerWriteReactor<wire::News> {
 public:
  Watcher(std::mutex& mutex, std::set<Watcher*>& all) : mutex_(mutex), all_(all) {}

  void push(wire::News news) {
    queue_.push_back(std::move(news));
    if (!writing_ && !finished_) write();
  }
  void finish(const Status& status) {
    closing_ = true;
    status_ = status;
    if (!writing_ && !finished_) finish_now();
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    queue_.pop_front();
    if (finished_) return;
    if (!ok || (closing_ && queue_.empty())) return finish_now();
    if (!queue_.empty()) write();
  }
  void OnCancel() override {
    std::lock_guard lock(mutex_);
    queue_.resize(writing_ ? 1 : 0);
    finish(Status::CANCELLED);
  }
  void OnDone() override {
    {
      std::lock_guard lock(mutex_);
      all_.erase(this);
    }
    delete this;
  }

 private:
  void write() {
    writing_ = true;
    StartWrite(&queue_.front());
  }
  void finish_now() {
    finished_ = true;
    Finish(status_);
  }

  std::mutex& mutex_;
  std::set<Watcher*>& all_;
  std::deque<wire::News> queue_;  // the front is being written
  bool writing_ = false, closing_ = false, finished_ = false;
  Status status_;
};

struct PendingExchange {
  std::map<int, std::string> values;
  std::map<int, std::pair<ServerUnaryReactor*, wire::ExchangeReply*>> waiting;
};

class Service final : public wire::Coordinator::CallbackService {
 public:
  explicit Service(CoordinatorOptions options)
      : options_(std::move(options)),
        members_(options_.size),
        tokens_(static_cast<std::size_t>(options_.size)) {
    if (options_.version.empty()) options_.version = kWireVersion;
  }

  ServerUnaryReactor* Hello(CallbackServerContext* context, const wire::HelloRequest* request,
                            wire::HelloReply* reply) override;
  ServerUnaryReactor* Join(CallbackServerContext* context, const wire::JoinRequest* request,
                           wire::JoinReply* reply) override;
  ServerUnaryReactor* Exchange(CallbackServerContext* context, const wire::ExchangeRequest* request,
                               wire::ExchangeReply* reply) override;
  ServerUnaryReactor* Heartbeat(CallbackServerContext* context,
                                const wire::HeartbeatRequest* request,
                                wire::HeartbeatReply* reply) override;
  grpc::ServerWriteReactor<wire::News>* Watch(CallbackServerContext* context,
                                              const wire::WatchRequest* request) override;
  ServerUnaryReactor* ReportFailure(CallbackServerContext* context,
                                    const wire::FailureReport* request,
                                    wire::Empty* reply) override;
  ServerUnaryReactor* Leave(CallbackServerContext* context, const wire::LeaveRequest* request,
                            wire::Empty* reply) override;

  bool record(Failure failure);
  void announce();
  void tell_all(const wire::News& news);
  void stop(int signal);
  void gone(int rank, const std::string& why);
  void close();

  std::mutex mutex_;
  CoordinatorOptions options_;
  Membership members_;

 private:
  // The rank that `session` proves to be, or -1.
  int rank_of(const wire::Session& session) const;
  Status check_join(const wire::JoinRequest& request, JoinTranscript& transcript);
  void fail_exchanges(const std::string& why);

  std::vector<std::string> tokens_;
  std::map<std::string, JoinTranscript> handshakes_;  // by server nonce
  std::map<std::string, PendingExchange> exchanges_;  // by key
  std::set<Watcher*> watchers_;
  std::string broken_;  // why later exchanges cannot complete
  int stop_signal_ = 0;
  bool announced_ = false;
};

const Status kNoSession(StatusCode::UNAUTHENTICATED, "the call carries no valid session");

int Service::rank_of(const wire::Session& session) const {
  const std::size_t rank = session.rank();
  if (rank >= tokens_.size() || tokens_[rank].empty()) return -1;
  return same_proof(tokens_[rank], session.token()) ? static_cast<int>(rank) : -1;
}

ServerUnaryReactor* Service::Hello(CallbackServerContext* context,
                                   const wire::HelloRequest* request, wire::HelloReply* reply) {
  std::lock_guard lock(mutex_);
  if (request->client_nonce().size() != kNonceBytes || handshakes_.size() >= kOpenHandshakes) {
    return answer(context, Status(StatusCode::INVALID_ARGUMENT, "malformed or too many"));
  }
  const JoinTranscript transcript{request->client_nonce(), random_bytes(kNonceBytes),
                                  request->job(),          request->epoch(),
                                  request->rank(),         request->version()};
  handshakes_[transcript.server_nonce] = transcript;
  reply->set_server_nonce(transcript.server_nonce);
  reply->set_server_proof(prove_join(options_.secret, "coordinator", transcript));
  return answer(context, Status::OK);
}

Status Service::check_join(const wire::JoinRequest& request, JoinTranscript& transcript) {
  const auto open = handshakes_.find(request.server_nonce());
  if (open == handshakes_.end()) return Status(StatusCode::UNAUTHENTICATED, "no such handshake");
  transcript = open->second;
  handshakes_.erase(open);
  if (!same_proof(prove_join(options_.secret, "rank", transcript), request.client_proof())) {
    return Status(StatusCode::UNAUTHENTICATED, "the rank does not know the job's secret");
  }
  if (transcript.version != options_.version) {
    return Status(StatusCode::FAILED_PRECONDITION,
                  "rank " + std::to_string(transcript.rank) + " is \"" + transcript.version +
                      "\", its coordinator \"" + options_.version + "\"");
  }
  if (transcript.job != options_.job || transcript.epoch != options_.epoch ||
      transcript.rank >= tokens_.size()) {
    return Status(StatusCode::FAILED_PRECONDITION,
                  "rank " + std::to_string(transcript.rank) + " of job " + transcript.job +
                      ", epoch " + std::to_string(transcript.epoch) + ", does not belong to job " +
                      options_.job + ", epoch " + std::to_string(options_.epoch) + ", of " +
                      std::to_string(tokens_.size()) + " ranks");
  }
  return Status::OK;
}

ServerUnaryReactor* Service::Join(CallbackServerContext* context, const wire::JoinRequest* request,
                                  wire::JoinReply* reply) {
  std::lock_guard lock(mutex_);
  JoinTranscript transcript;
  Status status = check_join(*request, transcript);
  const int rank = static_cast<int>(transcript.rank);
  if (status.ok()) {
    const auto refusal = members_.join(rank, request->host(), request->identity(), steady_now());
    if (refusal) status = Status(StatusCode::FAILED_PRECONDITION, *refusal);
  }
  if (!status.ok()) {
    // A rank that proved the secret was refused for a reason that everybody should read.
    if (status.error_code() == StatusCode::FAILED_PRECONDITION && rank < members_.size()) {
      record({rank, request->host(), -1, "join",
              "rank " + std::to_string(rank) + " on host " + request->host() +
                  " was refused: " + status.error_message() +
                  ". Start every rank from the same build, with the same configuration.",
              static_cast<int>(ExitCode::Refused)});
    }
    return answer(context, status);
  }
  tokens_[rank] = random_bytes(kSecretBytes);
  reply->set_token(tokens_[rank]);
  return answer(context, Status::OK);
}

ServerUnaryReactor* Service::Exchange(CallbackServerContext* context,
                                      const wire::ExchangeRequest* request,
                                      wire::ExchangeReply* reply) {
  std::lock_guard lock(mutex_);
  const int rank = rank_of(request->session());
  if (rank < 0) return answer(context, kNoSession);
  if (request->value().size() > kLongestExchange || request->key().size() > 256) {
    return answer(context, Status(StatusCode::INVALID_ARGUMENT, "too long"));
  }
  PendingExchange& pending = exchanges_[request->key()];
  pending.values[rank] = request->value();
  ServerUnaryReactor* reactor = context->DefaultReactor();
  // A rank that repeats a call whose deadline passed: nobody reads the earlier answer.
  if (const auto old = pending.waiting.find(rank); old != pending.waiting.end()) {
    old->second.first->Finish(Status::CANCELLED);
  }
  pending.waiting[rank] = {reactor, reply};
  if (pending.values.size() < tokens_.size()) {
    if (!broken_.empty()) fail_exchanges(broken_);
    return reactor;
  }
  for (auto& [waiting_rank, call] : pending.waiting) {
    for (auto& [value_rank, value] : pending.values) call.second->add_values(value);
    call.first->Finish(Status::OK);
  }
  exchanges_.erase(request->key());
  return reactor;
}

void Service::fail_exchanges(const std::string& why) {
  for (auto& [key, pending] : exchanges_) {
    for (auto& [rank, call] : pending.waiting) {
      call.first->Finish(Status(StatusCode::ABORTED, why));
    }
    pending.waiting.clear();
  }
}

ServerUnaryReactor* Service::Heartbeat(CallbackServerContext* context,
                                       const wire::HeartbeatRequest* request,
                                       wire::HeartbeatReply* reply) {
  std::lock_guard lock(mutex_);
  const int rank = rank_of(request->session());
  if (rank < 0) return answer(context, kNoSession);
  const TimePoint now = steady_now();
  members_.beat(rank, activity_from(request->activity()), now);
  fill(members_.table(now), *reply);
  return answer(context, Status::OK);
}

grpc::ServerWriteReactor<wire::News>* Service::Watch(CallbackServerContext*,
                                                     const wire::WatchRequest* request) {
  std::lock_guard lock(mutex_);
  auto* watcher = new Watcher(mutex_, watchers_);  // deletes itself in OnDone
  watchers_.insert(watcher);
  if (rank_of(request->session()) < 0) {
    watcher->finish(kNoSession);
    return watcher;
  }
  wire::News first;
  first.set_watching(true);
  watcher->push(first);
  wire::News news;
  if (stop_signal_ != 0) {
    news.set_stop_signal(stop_signal_);
    watcher->push(news);
  }
  if (announced_) {
    fill(*members_.first_failure(), *news.mutable_failure());
    watcher->push(news);
  }
  return watcher;
}

ServerUnaryReactor* Service::ReportFailure(CallbackServerContext* context,
                                           const wire::FailureReport* request, wire::Empty*) {
  Failure failure;
  {
    std::lock_guard lock(mutex_);
    const int rank = rank_of(request->session());
    if (rank < 0) return answer(context, kNoSession);
    failure = failure_from(request->failure());
    failure.rank = rank;
    record(failure);
  }
  if (options_.on_failure) options_.on_failure(failure);
  return answer(context, Status::OK);
}

ServerUnaryReactor* Service::Leave(CallbackServerContext* context,
                                   const wire::LeaveRequest* request, wire::Empty*) {
  std::lock_guard lock(mutex_);
  const int rank = rank_of(request->session());
  if (rank < 0) return answer(context, kNoSession);
  members_.leave(rank);
  gone(rank, "rank " + std::to_string(rank) + " has left the job");
  return answer(context, Status::OK);
}

// An exchange can only fail by a rank that has not yet given its value.
void Service::gone(int rank, const std::string& why) {
  broken_ = why;
  for (auto& [key, pending] : exchanges_) {
    if (pending.values.count(rank) != 0) continue;
    for (auto& [waiting, call] : pending.waiting) {
      call.first->Finish(Status(StatusCode::ABORTED, why));
    }
    pending.waiting.clear();
  }
  wire::News news;
  news.set_left_rank(static_cast<std::uint32_t>(rank));
  tell_all(news);
}

bool Service::record(Failure failure) {
  const bool secondary = failure.secondary();
  if (failure.host.empty()) failure.host = members_.host(failure.rank);
  const bool first = members_.fail(std::move(failure));
  if (first && !secondary) announce();
  return first;
}

void Service::announce() {
  const auto failure = members_.first_failure();
  if (announced_ || !failure) return;
  announced_ = true;
  wire::News news;
  fill(*failure, *news.mutable_failure());
  tell_all(news);
  broken_ = failure->sentence;
  fail_exchanges(broken_);
}

void Service::tell_all(const wire::News& news) {
  for (Watcher* watcher : watchers_) watcher->push(news);
}

void Service::stop(int signal) {
  std::lock_guard lock(mutex_);
  stop_signal_ = signal;
  wire::News news;
  news.set_stop_signal(signal);
  tell_all(news);
}

void Service::close() {
  std::lock_guard lock(mutex_);
  broken_ = "the launcher is ending";
  fail_exchanges(broken_);
  for (Watcher* watcher : watchers_) watcher->finish(Status::OK);
}

}  // namespace

struct Coordinator::Impl {
  explicit Impl(CoordinatorOptions options) : service(std::move(options)) {}
  Service service;
  std::string endpoint;
  std::unique_ptr<grpc::Server> server;
};

Coordinator::Coordinator(CoordinatorOptions options) {
  if (!is_loopback(options.address) && options.secret.empty()) {
    throw ConfigError("a coordinator on " + options.address + " needs a job secret",
                      {.operation = "launch",
                       .advice = "Set TRIREME_JOB_SECRET_FILE to a file that only you may read, or "
                                 "listen on 127.0.0.1."});
  }
  if (options.secret.size() < 16) {
    throw ConfigError("a job secret has at least 16 bytes", {.operation = "launch"});
  }
  const std::string address = options.address;
  impl_ = std::make_unique<Impl>(std::move(options));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kLargestMessage);
  builder.AddListeningPort(address + ":0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&impl_->service);
  impl_->server = builder.BuildAndStart();
  if (!impl_->server || port == 0) {
    throw ResourceError(
        "could not listen on " + address,
        {.operation = "launch", .advice = "See whether the address is this host's."});
  }
  impl_->endpoint = address + ":" + std::to_string(port);
}

Coordinator::~Coordinator() {
  impl_->service.close();
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  impl_->server->Wait();
}

const std::string& Coordinator::endpoint() const noexcept { return impl_->endpoint; }

void Coordinator::set_process(int rank, pid_t pid) {
  std::lock_guard lock(impl_->service.mutex_);
  impl_->service.members_.set_process(rank, pid, steady_now());
}

void Coordinator::end(int rank) {
  std::lock_guard lock(impl_->service.mutex_);
  const bool left = impl_->service.members_.phase(rank) == Phase::Left;
  impl_->service.members_.end(rank);
  if (!left) impl_->service.gone(rank, "rank " + std::to_string(rank) + " has ended");
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

void Coordinator::request_stop(int signal) { impl_->service.stop(signal); }

void Coordinator::forgive_silence() {
  std::lock_guard lock(impl_->service.mutex_);
  impl_->service.members_.forgive(steady_now());
}

bool Coordinator::has_joined(int rank) const {
  std::lock_guard lock(impl_->service.mutex_);
  return impl_->service.members_.phase(rank) != Phase::Absent;
}

}  // namespace launch
}  // namespace v0
}  // namespace trireme
