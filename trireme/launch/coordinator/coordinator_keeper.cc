#include "trireme/launch/coordinator/coordinator_keeper.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/launch/hosts/spawn.h"
#include "trireme/launch/output.h"
#include "trireme/launch/rank_end.h"
#include "trireme/rendezvous/coordinator/door.h"

namespace trireme::inline v0::launch {
namespace {

using rendezvous::Failure;

constexpr int kPingMs = 1000, kMostUnanswered = 20;
constexpr Duration kSoon = std::chrono::seconds(2);
constexpr int kMostSoon = 5;
constexpr Duration kPause = std::chrono::milliseconds(200);
constexpr int kEndMs = 200;
constexpr Duration kClose = std::chrono::seconds(3);

}  // namespace

CoordinatorKeeper::CoordinatorKeeper(rendezvous::CoordinatorOptions options, KeptOptions kept,
                                     CoordinatorOrders& orders)
    : setup_{std::move(options), kept.store}, kept_(std::move(kept)), orders_(orders) {
  TRIREME_CHECK(!kept_.command.empty());
  setup_.options.listener = std::make_shared<net::Listener>(
      rendezvous::listen(setup_.options.address, setup_.options.port));
  setup_.options.anew = true;
  const std::string& address = setup_.options.listener->address;
  endpoint_ = address.substr(address.find(' ') + 1);
  keeper_ = std::thread([this] { keep(); });
  decided_.wait(Duration::max());
  if (!orders_.given_up()) return;
  keeper_.join();
  throw_error(refusal_->code, refusal_->sentence, {});
}

void CoordinatorKeeper::close() {
  orders_.close();
  closed_.set();
  if (keeper_.joinable()) keeper_.join();
}

void CoordinatorKeeper::keep() {
  for (;;) {
    try {
      serve(start());
    } catch (const Error& error) {
      refusal_ = Refusal{error.code(), error.what(), !ready_};
    }
    if (!starts_again(end_process())) return;
  }
}

// Returns the socket to the process.
int CoordinatorKeeper::start() {
  started_ = steady_now();
  refusal_.reset();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    net::throw_system_error("socketpair");
  Descriptor ours(ends[0]), theirs(ends[1]);
  const int port = setup_.options.listener->socket.get();
  const Process process = spawn({.command = kept_.command,
                                 .environment = own_environment(),
                                 .input = theirs.get(),
                                 .inherit = {port}});
  pid_ = process.pid;
  process_ = Descriptor(process.descriptor);
  bytes_.clear();
  pinged_ = false;
  unanswered_ = 0;
  const int socket = ours.get();
  orders_.connect(std::move(ours), setup_);
  return socket;
}

// Returns when the connection to the process has ended, also by beat().
void CoordinatorKeeper::serve(int socket) {
  for (;;) {
    pollfd ready{socket, POLLIN, 0};
    const int happened = ::poll(&ready, 1, kPingMs);
    if (happened == 0) beat();
    if (happened <= 0) continue;
    if (!receive(socket, bytes_)) return;
    unanswered_ = 0;
    for (Message message; take_message(bytes_, message);) take(message);
  }
}

// Called for each second without a message. Seconds are counted, since this process may be stopped.
void CoordinatorKeeper::beat() {
  if (!std::exchange(pinged_, true)) orders_.ping();
  const int most =
      orders_.closing() ? static_cast<int>(kClose / std::chrono::seconds(1)) : kMostUnanswered;
  if (++unanswered_ >= most) orders_.cut();
}

void CoordinatorKeeper::take(const Message& message) {
  const rendezvous::CoordinatorOptions& options = setup_.options;
  if (message.kind == "failed") {
    const Failure failure = failure_from(message, 0);
    orders_.remember(failure);  // the next process does not know it
    return options.on_failure(failure);
  }
  if (message.kind == "joined") return options.on_joined(message.process);
  if (message.kind == "server-lost") return options.on_server_lost(message.process);
  if (message.kind == "copy")
    return options.on_new_copy(message.process, static_cast<int>(message.number(0)));
  if (message.kind == "refused" || message.kind == "store-lost") {
    const auto code = static_cast<ExitCode>(message.number(0));
    refusal_ = Refusal{code, message.field(1),
                       message.kind == "store-lost" || !ready_ || code != ExitCode::Resource};
    return;
  }
  if (message.kind == "pong") pinged_ = false;
  if (message.kind == "ready") {
    if (ready_) say("the coordinator is back.");
    ready_ = true;
    setup_.options.anew = false;
    away_since_ = TimePoint();
    return decided_.set();
  }
  if (message.kind == "answer") orders_.take_answer(message);
}

Exit CoordinatorKeeper::end_process() {
  orders_.disconnect();
  if (pid_ < 0) return {.code = 1};       // it could not be started
  pollfd end{process_.get(), POLLIN, 0};  // the socket closes a moment earlier
  if (::poll(&end, 1, kEndMs) != 1) ::kill(pid_, SIGKILL);
  return await_end(std::exchange(pid_, -1));
}

// If the store is away when the process starts again, it is waited for.
bool CoordinatorKeeper::starts_again(const Exit& exit) {
  const TimePoint now = steady_now();
  if (orders_.closing()) return false;
  soon_ = (now - started_ < kSoon || !ready_) && !refusal_ ? soon_ + 1 : 0;
  if (soon_ == kMostSoon)
    refusal_ = Refusal{
        .sentence = "the coordinator " + how_it_ended(exit) + " each time that it was started",
        .final = true};
  const bool first = away_since_ == TimePoint();
  if (first) away_since_ = now;
  const bool too_long = now - away_since_ > setup_.options.store_patience;
  if (too_long && !refusal_)
    refusal_ = Refusal{.sentence = "the coordinator could not be started again"};
  if (refusal_ && (refusal_->final || too_long)) {
    give_up();
    return false;
  }
  if (first && ready_)
    say("the coordinator " +
        (refusal_ ? "has ended: " + refusal_->sentence : how_it_ended(exit) + ".") +
        " It is started again; the ranks go on meanwhile.");
  return !closed_.wait(soon_ > 0 || refusal_ ? kPause : Duration::zero());
}

void CoordinatorKeeper::give_up() {
  orders_.give_up();
  decided_.set();
  if (!ready_) return;  // the constructor throws
  kept_.on_lost({.rank = 0,
                 .operation = "coordinator",
                 .sentence = "the job has lost its coordinator: " + refusal_->sentence,
                 .exit_code = static_cast<int>(refusal_->code)});
}

}  // namespace trireme::inline v0::launch
