#include "trireme/rendezvous/client.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/rendezvous/coordinator.grpc.pb.h"
#include "trireme/rendezvous/door.h"
#include "trireme/rendezvous/room.h"
#include "trireme/rendezvous/secret.h"
#include "trireme/rendezvous/wire_convert.h"

namespace trireme::inline v0::rendezvous {
namespace {

std::chrono::system_clock::time_point after(Duration duration) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(duration);
}

// One connection, without reconnecting: a rank that loses its coordinator is lost too.
std::shared_ptr<grpc::Channel> open_channel(const ClientOptions& options) {
  require_room_for_grpc();
  try {
    net::Descriptor socket = enter(options.endpoint, options.secret, options.timeout);
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

}  // namespace

struct CoordinatorClient::Impl {
  explicit Impl(ClientOptions given)
      : options(std::move(given)), stub(wire::Coordinator::NewStub(open_channel(options))) {
    if (options.version.empty()) options.version = kWireVersion;
  }

  void join();
  void watch_loop(const std::function<void(const News&)>& on_news);
  grpc::Status tell(wire::ServerNews& news, wire::ServerViewReply& reply, Duration timeout) const;
  [[noreturn]] void raise(const grpc::Status& status, const std::string& operation) const;
  void sign(wire::Session& session) const {
    session.set_rank(static_cast<std::uint32_t>(options.rank));
    session.set_token(token);
  }

  ClientOptions options;
  std::unique_ptr<wire::Coordinator::Stub> stub;
  std::string token;
  std::mutex mutex;
  std::optional<grpc::ClientContext> watching;  // guarded by mutex
  bool stopping = false;
  std::optional<Event> begun;  // set when the stream has begun
  std::uint32_t streams = 0;   // number of news streams begun so far
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
    case grpc::StatusCode::ABORTED:
      throw PeerLost(status.error_message(), std::move(context));
    default:
      context.advice = "See whether the launcher still runs.";
      throw PeerLost(
          ExitCode::CoordinatorLost,
          "the coordinator at " + options.endpoint + " is lost: " + status.error_message(),
          std::move(context));
  }
}

void CoordinatorClient::Impl::join() {
  wire::JoinRequest request;
  request.set_version(options.version);
  request.set_job(options.job);
  request.set_epoch(options.epoch);
  request.set_rank(static_cast<std::uint32_t>(options.rank));
  request.set_host(options.host);
  request.set_identity(options.identity);
  wire::JoinReply reply;
  grpc::ClientContext context;
  context.set_deadline(after(options.timeout));
  if (const auto status = stub->Join(&context, request, &reply); !status.ok()) {
    raise(status, "join");
  }
  token = reply.token();
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
  impl_->sign(*request.mutable_session());
  request.set_key(key);
  request.set_value(value);
  request.set_first(static_cast<std::uint32_t>(group.first));
  request.set_count(static_cast<std::uint32_t>(group.count));
  for (const int process : group.members) request.add_members(static_cast<std::uint32_t>(process));
  request.set_epoch(group.epoch);
  wire::ExchangeReply reply;
  grpc::ClientContext context;
  context.set_deadline(after(timeout));
  if (const auto status = impl_->stub->Exchange(&context, request, &reply); !status.ok()) {
    impl_->raise(status, "exchange");
  }
  return {reply.values().begin(), reply.values().end()};
}

Table CoordinatorClient::heartbeat(const Activity& activity, Duration timeout) {
  wire::HeartbeatRequest request;
  impl_->sign(*request.mutable_session());
  fill(activity, *request.mutable_activity());
  wire::HeartbeatReply reply;
  grpc::ClientContext context;
  context.set_deadline(after(timeout));
  if (const auto status = impl_->stub->Heartbeat(&context, request, &reply); !status.ok()) {
    impl_->raise(status, "heartbeat");
  }
  return table_from(reply);
}

void CoordinatorClient::Impl::watch_loop(const std::function<void(const News&)>& on_news) {
  wire::WatchRequest request;
  sign(*request.mutable_session());
  request.set_stream(streams - 1);
  const auto stream = stub->Watch(&*watching, request);
  wire::News message;
  while (stream->Read(&message)) {
    begun->set();
    News news;
    switch (message.what_case()) {
      case wire::News::kFailure:
        news.kind = News::Kind::Failure;
        news.failure = failure_from(message.failure());
        break;
      case wire::News::kStopSignal:
        news.kind = News::Kind::Stop;
        news.stop_signal = message.stop_signal();
        break;
      case wire::News::kLeftRank:
        news.kind = News::Kind::Left;
        news.left_rank = static_cast<int>(message.left_rank());
        break;
      case wire::News::kServerView:
        news.kind = News::Kind::Servers;
        news.servers = ServerView::from_text(message.server_view());
        break;
      case wire::News::kEpoch:
        news.kind = News::Kind::Epoch;
        news.epoch = epoch_from(message.epoch());
        break;
      case wire::News::kFinished:
        news.kind = News::Kind::Finished;
        break;
      default:
        continue;
    }
    on_news(news);
  }
  stream->Finish();
  begun->set();
  {
    std::lock_guard lock(mutex);
    if (stopping) return;
  }
  News lost;
  lost.kind = News::Kind::CoordinatorLost;
  on_news(lost);
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
    impl_->sign(*request.mutable_session());
    request.set_stream(impl_->streams - 1);
    wire::Empty reply;
    grpc::ClientContext context;
    context.set_deadline(after(std::chrono::seconds(1)));
    impl_->stub->StopWatching(&context, request, &reply);
  }
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    if (impl_->watching) impl_->watching->TryCancel();
  }
  if (impl_->watcher.joinable()) impl_->watcher.join();
}

grpc::Status CoordinatorClient::Impl::tell(wire::ServerNews& news, wire::ServerViewReply& reply,
                                           Duration timeout) const {
  sign(*news.mutable_session());
  grpc::ClientContext context;
  context.set_deadline(after(timeout));
  return stub->TellOfServers(&context, news, &reply);
}

ServerView CoordinatorClient::server_view(Duration timeout) {
  wire::ServerNews news;
  wire::ServerViewReply reply;
  if (const auto status = impl_->tell(news, reply, timeout); !status.ok())
    impl_->raise(status, "servers");
  return ServerView::from_text(reply.view());
}

std::pair<ServerView, std::uint32_t> CoordinatorClient::listen_at(const std::string& address,
                                                                  Duration timeout) {
  wire::ServerNews news;
  wire::ServerViewReply reply;
  news.set_listens_at(address);
  if (const auto status = impl_->tell(news, reply, timeout); !status.ok())
    impl_->raise(status, "servers");
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
  impl_->tell(news, reply, std::chrono::seconds(1));
}

void CoordinatorClient::tell_unreachable(int server, std::uint32_t incarnation) noexcept {
  wire::ServerNews news;
  wire::ServerViewReply reply;
  news.mutable_unreachable()->set_server(static_cast<std::uint32_t>(server));
  news.mutable_unreachable()->set_incarnation(incarnation);
  impl_->tell(news, reply, std::chrono::seconds(1));
}

void CoordinatorClient::tell_alone() noexcept {
  wire::ServerNews news;
  wire::ServerViewReply reply;
  news.set_alone(true);
  impl_->tell(news, reply, std::chrono::seconds(1));
}

void CoordinatorClient::report(const Failure& failure) noexcept {
  wire::FailureReport request;
  impl_->sign(*request.mutable_session());
  fill(failure, *request.mutable_failure());
  wire::Empty reply;
  grpc::ClientContext context;
  context.set_deadline(after(std::chrono::seconds(1)));
  impl_->stub->ReportFailure(&context, request, &reply);
}

void CoordinatorClient::leave() noexcept {
  wire::LeaveRequest request;
  impl_->sign(*request.mutable_session());
  wire::Empty reply;
  grpc::ClientContext context;
  context.set_deadline(after(std::chrono::seconds(1)));
  impl_->stub->Leave(&context, request, &reply);
}

}  // namespace trireme::inline v0::rendezvous
