#include "trireme/rendezvous/client.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/rendezvous/coordinator.grpc.pb.h"
#include "trireme/rendezvous/coordinator/door.h"
#include "trireme/rendezvous/launchers/room.h"
#include "trireme/rendezvous/secret.h"
#include "trireme/rendezvous/wire_convert.h"

namespace trireme::inline v0::rendezvous {
namespace {

std::chrono::system_clock::time_point after(Duration duration) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(duration);
}

// gRPC cannot reconnect, because both ends prove the secret first.
std::shared_ptr<grpc::Channel> open_channel(const ClientOptions& options, Duration timeout,
                                            std::optional<Duration> patience) {
  require_room_for_grpc();
  try {
    Descriptor socket =
        enter(options.endpoint, options.secret, timeout, "process " + std::to_string(options.rank));
    if (patience) net::set_patience(socket.get(), *patience);
    return grpc::CreateInsecureChannelFromFd("coordinator", socket.release());
  } catch (const Error& error) {
    ErrorContext context = error.context();
    context.rank = options.rank;
    context.host = options.host;
    context.operation = "join";
    if (error.code() == ExitCode::Unauthenticated) {
      throw RefusedError(
          error.code(),
          "the coordinator at " + options.endpoint + " does not know the job's secret", context);
    }
    throw_error(error.code(), error.message(), std::move(context));
  }
}

// Whether a call failed because its connection, or the coordinator, is gone.
bool is_disconnection(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return false;
    default:
      return true;
  }
}

// Whether the coordinator may have missed a call: it is gone, hangs, or its host has vanished.
bool is_unheard(const grpc::Status& status) {
  return is_disconnection(status) || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
}

constexpr Duration kOneTry = std::chrono::seconds(1), kRetryPause = std::chrono::milliseconds(50);
// Before it has joined, a process does not know whether another coordinator comes.
constexpr Duration kComesBack = std::chrono::seconds(2);
constexpr Duration kLongestFarewell = std::chrono::seconds(30);
constexpr Duration kShortly = std::chrono::seconds(1);  // for one try of a report

}  // namespace

struct CoordinatorClient::Impl {
  using Stub = wire::Coordinator::Stub;

  explicit Impl(ClientOptions given) : options(std::move(given)) {
    if (options.version.empty()) options.version = kWireVersion;
    connect(options.timeout);
  }

  void connect(Duration timeout) {
    std::shared_ptr<Stub> next =
        wire::Coordinator::NewStub(open_channel(options, timeout, patience));
    std::lock_guard lock(mutex);
    connected = std::move(next);
  }
  std::shared_ptr<Stub> stub() const {
    std::lock_guard lock(mutex);
    return connected;
  }
  bool is_stopping() const {
    std::lock_guard lock(mutex);
    return stopping;
  }

  // Before a call is repeated.
  void pause() { pauses.wait(kRetryPause); }
  wire::JoinRequest join_request() const;
  void join();
  void watch_loop(const std::function<void(const News&)>& on_news);
  grpc::Status read_news(const std::function<void(const News&)>& on_news);
  bool reconnect();
  wire::HeartbeatReply beat(const Activity& activity, bool only_tells, Duration timeout) const;
  wire::ServerViewReply ask_of_servers(wire::ServerNews news, Duration timeout);
  grpc::Status tell_surely(wire::ServerNews& news, wire::ServerViewReply& reply, Duration timeout,
                           bool (*repeats)(const grpc::Status&));
  [[noreturn]] void raise(const grpc::Status& status, const std::string& operation) const;
  void sign(wire::Session& session) const {
    session.set_rank(static_cast<std::uint32_t>(options.rank));
    session.set_token(token);
  }
  // Signs the request.
  template <class Request, class Reply>
  grpc::Status call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    Request& request, Reply& reply, Duration timeout) const {
    sign(*request.mutable_session());
    grpc::ClientContext context;
    context.set_deadline(after(timeout));
    return ((*stub()).*method)(&context, request, &reply);
  }

  ClientOptions options;
  std::string token = random_bytes(kSecretBytes);
  Duration returns_within{};         // zero: no other coordinator replaces a lost one
  Duration heartbeat{};              // longest time between two; zero: any
  std::optional<Duration> patience;  // with a host that does not answer; none: the door's
  std::atomic<bool> given_up{false};
  Event pauses;  // never set
  mutable std::mutex mutex;
  std::shared_ptr<Stub> connected;              // guarded by mutex
  std::optional<grpc::ClientContext> watching;  // guarded by mutex
  bool stopping = false;                        // guarded by mutex
  std::optional<Event> begun;                   // set when the stream has begun
  std::atomic<std::uint32_t> streams{0};        // number of news streams begun so far
  std::thread watcher;
};

void CoordinatorClient::Impl::raise(const grpc::Status& status,
                                    const std::string& operation) const {
  ErrorContext context{.rank = options.rank, .host = options.host, .operation = operation};
  switch (status.error_code()) {
    case grpc::StatusCode::FAILED_PRECONDITION:
      context.advice = "Start every rank from the same build, with the same configuration.";
      throw RefusedError(status.error_message(), std::move(context));
    case grpc::StatusCode::UNAUTHENTICATED:
      context.advice = "Give every rank of the job the same secret.";
      throw RefusedError(ExitCode::Unauthenticated, status.error_message(), std::move(context));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      throw TimeoutError("the coordinator at " + options.endpoint + " did not answer in time",
                         std::move(context));
    case grpc::StatusCode::ALREADY_EXISTS:
      context.advice = "Start it again in a few seconds.";
      throw TimeoutError(status.error_message(), std::move(context));
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:  // larger than gRPC takes
      context.advice =
          "Make it smaller if it is yours (a tuning table); otherwise this is a bug in Trireme.";
      throw ConfigError("the coordinator refuses the call: " + status.error_message(),
                        std::move(context));
    case grpc::StatusCode::ABORTED:
      throw PeerLost(status.error_message(), std::move(context));
    default:
      context.advice = "See whether the launcher, or `trireme coordinator`, still runs.";
      throw PeerLost(
          ExitCode::CoordinatorLost,
          "the coordinator at " + options.endpoint + " is lost: " + status.error_message(),
          std::move(context));
  }
}

wire::JoinRequest CoordinatorClient::Impl::join_request() const {
  wire::JoinRequest request;
  request.set_version(options.version);
  request.set_job(options.job);
  request.set_rank(static_cast<std::uint32_t>(options.rank));
  request.set_host(options.host);
  request.set_identity(options.identity);
  request.set_token(token);
  return request;
}

CoordinatorClient::Answer CoordinatorClient::ask(ClientOptions options) {
  const Impl impl(std::move(options));
  wire::JoinRequest request = impl.join_request();
  request.set_asks(true);
  wire::JoinReply reply;
  grpc::ClientContext context;
  context.set_deadline(after(impl.options.timeout));
  const grpc::Status status = impl.stub()->Join(&context, request, &reply);
  if (!status.ok()) impl.raise(status, "join");
  return {reply.has_workers(), reply.has_begun(),
          std::chrono::milliseconds(reply.returns_within_ms())};
}

void CoordinatorClient::Impl::join() {
  const wire::JoinRequest request = join_request();
  wire::JoinReply reply;
  const TimePoint end = steady_now() + options.timeout;
  const auto call = [&] {
    grpc::ClientContext context;
    context.set_deadline(after(end - steady_now()));
    return stub()->Join(&context, request, &reply);
  };
  grpc::Status status = call();
  // The earlier process is being declared lost; or the coordinator is, and another one may come.
  const auto may_go_on = [&] {
    return status.error_code() == grpc::StatusCode::ALREADY_EXISTS || is_disconnection(status);
  };
  for (std::optional<TimePoint> lost; may_go_on() && steady_now() < lost.value_or(end);
       status = call()) {
    pause();
    if (!is_disconnection(status)) continue;
    if (!lost) lost = std::min(end, steady_now() + kComesBack);
    try {
      connect(kOneTry);
    } catch (const TimeoutError&) {
      break;
    }
  }
  if (!status.ok()) raise(status, "join");
  token = reply.token();
  returns_within = std::chrono::milliseconds(reply.returns_within_ms());
  heartbeat = std::chrono::milliseconds(reply.heartbeat_ms());
  if (returns_within == Duration::zero() || heartbeat == Duration::zero()) return;
  // Another coordinator may come on another host if this one's host vanishes.
  patience = kSilentHeartbeats * heartbeat;
  try {
    connect(kOneTry);
  } catch (const TimeoutError&) {  // it has just gone; its successor is next
  }
}

CoordinatorClient::CoordinatorClient(ClientOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->join();
}

CoordinatorClient::~CoordinatorClient() { stop_watching(); }

std::vector<std::string> CoordinatorClient::exchange(const std::string& key,
                                                     const std::string& value, Duration timeout,
                                                     const Group& group) {
  wire::ExchangeRequest request;
  request.set_key(key);
  request.set_value(value);
  request.set_first(static_cast<std::uint32_t>(group.first));
  request.set_count(static_cast<std::uint32_t>(group.count));
  for (const int process : group.members) request.add_members(static_cast<std::uint32_t>(process));
  request.set_epoch(group.epoch);
  wire::ExchangeReply reply;
  if (const auto status = impl_->call(&Impl::Stub::Exchange, request, reply, timeout);
      !status.ok()) {
    if (is_disconnection(status) && returns()) {
      impl_->pause();
      impl_->raise({grpc::StatusCode::DEADLINE_EXCEEDED, ""}, "exchange");  // to be repeated
    }
    impl_->raise(status, "exchange");
  }
  return {reply.values().begin(), reply.values().end()};
}

wire::HeartbeatReply CoordinatorClient::Impl::beat(const Activity& activity, bool only_tells,
                                                   Duration timeout) const {
  wire::HeartbeatRequest request;
  fill(activity, *request.mutable_activity());
  request.set_only_tells(only_tells);
  wire::HeartbeatReply reply;
  if (const auto status = call(&Stub::Heartbeat, request, reply, timeout); !status.ok())
    raise(status, "heartbeat");
  return reply;
}

Table CoordinatorClient::heartbeat(const Activity& activity, Duration timeout) {
  return table_from(impl_->beat(activity, /*only_tells=*/false, timeout));
}

void CoordinatorClient::beat(const Activity& activity, Duration timeout) {
  impl_->beat(activity, /*only_tells=*/true, timeout);
}

Duration CoordinatorClient::heartbeat_interval(Duration own) const noexcept {
  return impl_->heartbeat > Duration::zero() ? std::min(own, impl_->heartbeat) : own;
}

bool CoordinatorClient::returns() const noexcept {
  return impl_->returns_within > Duration::zero() && !impl_->given_up;
}

// Returns when the stream has ended.
grpc::Status CoordinatorClient::Impl::read_news(const std::function<void(const News&)>& on_news) {
  wire::WatchRequest request;
  sign(*request.mutable_session());
  request.set_stream(streams - 1);
  const std::shared_ptr<Stub> used = stub();
  const auto stream = used->Watch(&*watching, request);
  wire::News message;
  while (stream->Read(&message)) {
    begun->set();
    if (const auto news = news_from(message)) on_news(*news);
  }
  return stream->Finish();
}

// Connects to the coordinator that replaces the lost one. False if none comes.
bool CoordinatorClient::Impl::reconnect() {
  for (const TimePoint end = steady_now() + returns_within; steady_now() < end && !is_stopping();) {
    try {
      connect(kOneTry);
      std::lock_guard lock(mutex);
      if (stopping) return false;
      watching.emplace();
      ++streams;
      return true;
    } catch (const RefusedError&) {
      return false;
    } catch (const Error&) {
      pause();
    }
  }
  return false;
}

void CoordinatorClient::Impl::watch_loop(const std::function<void(const News&)>& on_news) {
  News news;
  for (;;) {
    const grpc::Status end = read_news(on_news);
    begun->set();
    if (is_stopping()) return;
    news = {.kind = News::Kind::CoordinatorLost};
    if (end.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
      news.reason =
          "the job has gone on without this process: the coordinator had not heard it, or "
          "has begun anew";
      break;
    }
    // A stream that ends without an error ends with the job.
    if (end.ok() || returns_within == Duration::zero()) break;
    on_news({.kind = News::Kind::CoordinatorAway, .reason = "is gone"});
    if (!reconnect()) break;
    on_news({.kind = News::Kind::CoordinatorBack});
  }
  given_up = true;
  if (!is_stopping()) on_news(news);
}

void CoordinatorClient::watch(std::function<void(const News&)> on_news) {
  stop_watching();
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = false;
    impl_->watching.emplace();
  }
  impl_->begun.emplace();
  ++impl_->streams;
  impl_->watcher = std::thread(
      [impl = impl_.get(), on_news = std::move(on_news)] { impl->watch_loop(on_news); });
  if (impl_->begun->wait(impl_->options.timeout)) return;
  stop_watching();
  impl_->raise({grpc::StatusCode::DEADLINE_EXCEEDED, ""}, "watch");
}

void CoordinatorClient::stop_watching() noexcept {
  if (impl_->watcher.joinable()) {
    wire::WatchRequest request;
    request.set_stream(impl_->streams - 1);
    wire::Empty reply;
    impl_->call(&Impl::Stub::StopWatching, request, reply, kShortly);
  }
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    if (impl_->watching) impl_->watching->TryCancel();
  }
  if (impl_->watcher.joinable()) impl_->watcher.join();
}

// Repeats the call while another coordinator replaces a lost one, to which the watcher connects.
grpc::Status CoordinatorClient::Impl::tell_surely(wire::ServerNews& news,
                                                  wire::ServerViewReply& reply, Duration timeout,
                                                  bool (*repeats)(const grpc::Status&)) {
  const TimePoint end = steady_now() + returns_within;
  for (;; pause()) {
    const grpc::Status status = call(&Stub::TellOfServers, news, reply, timeout);
    if (!repeats(status) || given_up || steady_now() >= end) return status;
  }
}

wire::ServerViewReply CoordinatorClient::Impl::ask_of_servers(wire::ServerNews news,
                                                              Duration timeout) {
  wire::ServerViewReply reply;
  const grpc::Status status = tell_surely(news, reply, timeout, is_disconnection);
  if (!status.ok()) raise(status, "servers");
  return reply;
}

ServerView CoordinatorClient::server_view(Duration timeout) {
  return ServerView::from_text(impl_->ask_of_servers({}, timeout).view());
}

std::pair<ServerView, std::uint32_t> CoordinatorClient::listen_at(const std::string& address,
                                                                  Duration timeout) {
  wire::ServerNews news;
  news.set_listens_at(address);
  const wire::ServerViewReply reply = impl_->ask_of_servers(std::move(news), timeout);
  return {ServerView::from_text(reply.view()), reply.incarnation()};
}

void CoordinatorClient::tell_copy(int shard, std::uint64_t term, int server,
                                  std::uint32_t incarnation) noexcept {
  wire::ServerNews news;
  wire::ServerViewReply reply;
  news.mutable_copy()->set_shard(static_cast<std::uint32_t>(shard));
  news.mutable_copy()->set_term(term);
  news.mutable_copy()->mutable_at()->set_server(static_cast<std::uint32_t>(server));
  news.mutable_copy()->mutable_at()->set_incarnation(incarnation);
  impl_->call(&Impl::Stub::TellOfServers, news, reply, kShortly);
}

void CoordinatorClient::tell_unreachable(int server, std::uint32_t incarnation) noexcept {
  wire::ServerNews news;
  wire::ServerViewReply reply;
  news.mutable_unreachable()->set_server(static_cast<std::uint32_t>(server));
  news.mutable_unreachable()->set_incarnation(incarnation);
  impl_->call(&Impl::Stub::TellOfServers, news, reply, kShortly);
}

std::optional<int> CoordinatorClient::tell_alone(int workers) noexcept {
  wire::ServerNews news;
  wire::ServerViewReply reply;
  news.set_alone(static_cast<std::uint32_t>(workers));
  impl_->tell_surely(news, reply, kShortly, is_unheard);
  return reply.has_other() ? std::optional(static_cast<int>(reply.other())) : std::nullopt;
}

void CoordinatorClient::tell_stop(int signal) noexcept {
  wire::ServerNews news;
  wire::ServerViewReply reply;
  news.set_stop_signal(signal);
  impl_->tell_surely(news, reply, kShortly, is_unheard);
}

void CoordinatorClient::report(const Failure& failure) noexcept {
  wire::FailureReport request;
  fill(failure, *request.mutable_failure());
  wire::Empty reply;
  impl_->call(&Impl::Stub::ReportFailure, request, reply, kShortly);
}

void CoordinatorClient::leave(int exit_code) noexcept {
  wire::LeaveRequest request;
  request.set_exit_code(exit_code);
  wire::Empty reply;
  const TimePoint end = steady_now() + std::min(impl_->returns_within, kLongestFarewell);
  while (is_unheard(impl_->call(&Impl::Stub::Leave, request, reply, kShortly)) && returns() &&
         steady_now() < end) {
    try {
      impl_->connect(kOneTry);
    } catch (const std::exception&) {
      impl_->pause();
    }
  }
}

}  // namespace trireme::inline v0::rendezvous
