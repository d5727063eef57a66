#include "trireme/launch/coordinator/kept_coordinator.h"

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
constexpr Duration kAnswers = std::chrono::seconds(2);
constexpr Duration kClose = std::chrono::seconds(3);

}  // namespace

KeptCoordinator::KeptCoordinator(rendezvous::CoordinatorOptions options, KeptOptions kept)
    : setup_{std::move(options), kept.store}, kept_(std::move(kept)), orders_(kept_.interrupted) {
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
  throw_error(lost_->code, lost_->sentence, {});
}

KeptCoordinator::~KeptCoordinator() { close(); }

void KeptCoordinator::close() {
  orders_.close();
  closed_.set();
  if (keeper_.joinable()) keeper_.join();
}

void KeptCoordinator::set_process(int rank, pid_t pid) {
  orders_.drop_about(rank);
  orders_.tell({"process", rank, {"0", std::to_string(pid)}});
}

void KeptCoordinator::end(int rank) { orders_.tell({"end", rank, {"0"}}); }

void KeptCoordinator::fail(Failure failure) { orders_.tell(failure); }

void KeptCoordinator::announce_failure() { orders_.tell({"announce", -1, {"0"}}); }
void KeptCoordinator::request_stop(int signal) {
  orders_.tell({"stop", -1, {"0", std::to_string(signal)}});
}
void KeptCoordinator::finish() { orders_.tell({"finish", -1, {"0"}}); }

void KeptCoordinator::forgive_silence() { orders_.forgive_silence(); }

// If the process waits for its store while the job ends, the failures that were told here count.
std::optional<Failure> KeptCoordinator::first_failure() const {
  const auto answer = orders_.ask({"first-failure", -1}, kAnswers);
  if (answer && answer->fields.size() > 1) return failure_from(*answer, 1);
  return orders_.first_failure();
}

std::optional<rendezvous::ServerView> KeptCoordinator::lose_server(int server) {
  const auto answer = orders_.ask({"lose-server", server});
  if (!answer || answer->fields.size() < 2) return std::nullopt;
  orders_.drop_about(setup_.options.roles.process_of(Role::Server, server));
  return rendezvous::ServerView::from_text(answer->field(1));
}

// Whether the answer has a field besides its number.
bool KeptCoordinator::agrees(Message order) const {
  const auto answer = orders_.ask(std::move(order));
  return answer && answer->fields.size() > 1;
}

bool KeptCoordinator::trains_alone(int worker) const { return agrees({"trains-alone", worker}); }

int KeptCoordinator::workers_needed() const {
  const auto answer = orders_.ask({"workers-needed", -1});
  return answer && answer->fields.size() > 1 ? static_cast<int>(answer->number(1)) : 1;
}

bool KeptCoordinator::lose_worker(int worker) {
  if (!agrees({"lose-worker", worker})) return false;
  orders_.drop_about(worker);
  return true;
}

void KeptCoordinator::regroup(const rendezvous::Epoch& epoch) {
  Message order{"regroup", -1, {"0"}};
  append(order, epoch);
  orders_.ask(std::move(order));
}

bool KeptCoordinator::has_met() const { return agrees({"has-met", -1}); }

void KeptCoordinator::forget(int process) {
  orders_.drop_about(process);
  orders_.ask({"forget", process});
  orders_.forgive_silence_of(process);
}

std::vector<int> KeptCoordinator::silent(Duration silence) const { return orders_.silent(silence); }

void KeptCoordinator::keep() {
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
int KeptCoordinator::start() {
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
void KeptCoordinator::serve(int socket) {
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
void KeptCoordinator::beat() {
  if (!std::exchange(pinged_, true)) orders_.ping();
  const int most =
      orders_.closing() ? static_cast<int>(kClose / std::chrono::seconds(1)) : kMostUnanswered;
  if (++unanswered_ >= most) orders_.cut();
}

void KeptCoordinator::take(const Message& message) {
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

Exit KeptCoordinator::end_process() {
  orders_.disconnect();
  if (pid_ < 0) return {.code = 1};       // it could not be started
  pollfd end{process_.get(), POLLIN, 0};  // the socket closes a moment earlier
  if (::poll(&end, 1, kEndMs) != 1) ::kill(pid_, SIGKILL);
  return await_end(std::exchange(pid_, -1));
}

// If the store is away when the process starts again, it is waited for.
bool KeptCoordinator::starts_again(const Exit& exit) {
  const TimePoint now = steady_now();
  if (orders_.closing()) return false;
  soon_ = (now - started_ < kSoon || !ready_) && !refusal_ ? soon_ + 1 : 0;
  if (soon_ == kMostSoon)
    refusal_ = Refusal{
        .sentence = "the coordinator " + how_it_ended(exit) + " each time that it was started",
        .final = true};
  if (refusal_ && refusal_->final) {
    give_up(*refusal_);
    return false;
  }
  if (away_since_ == TimePoint()) {
    away_since_ = now;
    if (ready_)
      say("the coordinator " +
          (refusal_ ? "has ended: " + refusal_->sentence : how_it_ended(exit) + ".") +
          " It is started again; the ranks go on meanwhile.");
  } else if (now - away_since_ > setup_.options.store_patience) {
    give_up(refusal_.value_or(Refusal{.sentence = "the coordinator could not be started again"}));
    return false;
  }
  return !closed_.wait(soon_ > 0 || refusal_ ? kPause : Duration::zero());
}

void KeptCoordinator::give_up(Refusal refusal) {
  lost_ = refusal;
  orders_.give_up();
  decided_.set();
  if (!ready_) return;  // the constructor throws
  kept_.on_lost({.rank = 0,
                 .operation = "coordinator",
                 .sentence = "the job has lost its coordinator: " + refusal.sentence,
                 .exit_code = static_cast<int>(refusal.code)});
}

}  // namespace trireme::inline v0::launch
