#include <signal.h>
#include <unistd.h>

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/standard_streams.h"
#include "trireme/base/work_thread.h"
#include "trireme/launch/coordinator/coordinator_messages.h"
#include "trireme/launch/output.h"

namespace trireme::inline v0::launch {
namespace {

using rendezvous::Coordinator;
using rendezvous::Failure;

constexpr Duration kLauncherTakes = std::chrono::minutes(1);

class CoordinatorProcess {
 public:
  explicit CoordinatorProcess(Descriptor socket) : socket_(std::move(socket)) {}
  int run();

 private:
  void take(const Message& message);
  void open(const Message& message);
  void apply(const Message& order);
  void close();
  void send(const Message& message);
  void refuse(const char* kind);

  const Descriptor socket_;
  std::string bytes_;
  std::mutex sending_;
  std::unique_ptr<Coordinator> coordinator_;
  bool closed_ = false;
  int exit_code_ = 0;
  WorkThread orders_;  // may wait for the store; ends first
};

int CoordinatorProcess::run() {
  while (!closed_ && receive(socket_.get(), bytes_))
    for (Message message; !closed_ && take_message(bytes_, message);) take(message);
  // The launcher is gone. _exit, because a call may still wait for the store.
  if (!closed_) _exit(0);
  return exit_code_;
}

void CoordinatorProcess::take(const Message& message) {
  if (message.kind == "ping") return send({"pong"});
  if (message.kind == "open") return open(message);
  if (message.kind == "close") return close();
  orders_.post([this, message] { apply(message); });
}

void CoordinatorProcess::open(const Message& message) {
  try {
    CoordinatorSetup setup = setup_of_coordinator(message);
    setup.options.store = rendezvous::make_store(setup.store);
    setup.options.on_failure = [this](const Failure& failure) {
      Message news{"failed"};
      append(news, failure);
      send(news);
    };
    setup.options.on_server_lost = [this](int server) { send({"server-lost", server}); };
    setup.options.on_new_copy = [this](int shard, int server) {
      send({"copy", shard, {std::to_string(server)}});
    };
    setup.options.on_joined = [this](int process) { send({"joined", process}); };
    setup.options.on_store_lost = [this](const std::exception_ptr& error) {
      try {
        std::rethrow_exception(error);
      } catch (...) {
        refuse("store-lost");
        _exit(1);
      }
    };
    coordinator_ = std::make_unique<Coordinator>(std::move(setup.options));
    send({"ready"});
  } catch (...) {
    refuse("refused");
    closed_ = true;
    exit_code_ = 1;
  }
}

void CoordinatorProcess::refuse(const char* kind) {
  const ErrorReport report = describe(std::current_exception());
  send({kind, -1, {std::to_string(report.exit_code), report.sentence}});
}

void CoordinatorProcess::apply(const Message& order) {
  const int process = order.process;
  Message answer{"answer", -1, {order.field(0)}};
  if (order.kind == "process") {
    coordinator_->set_process(process, static_cast<pid_t>(order.number(1)));
  } else if (order.kind == "end") {
    coordinator_->end(process);
  } else if (order.kind == "fail") {
    coordinator_->fail(failure_from(order, 1));
  } else if (order.kind == "announce") {
    coordinator_->announce_failure();
  } else if (order.kind == "first-failure") {
    if (const auto failure = coordinator_->first_failure()) append(answer, *failure);
  } else if (order.kind == "lose-server") {
    if (const auto view = coordinator_->lose_server(process))
      answer.fields.push_back(view->to_text());
  } else if (order.kind == "trains-alone") {
    if (coordinator_->trains_alone(process)) answer.fields.push_back("alone");
  } else if (order.kind == "workers-needed") {
    answer.fields.push_back(std::to_string(coordinator_->workers_needed()));
  } else if (order.kind == "lose-worker") {
    if (coordinator_->lose_worker(process)) answer.fields.push_back("lost");
  } else if (order.kind == "regroup") {
    // A repeated order may have been carried out: processes may have met in that epoch already.
    const rendezvous::Epoch epoch = epoch_from(order, 1);
    if (epoch != coordinator_->snapshot().epoch) coordinator_->regroup(epoch);
  } else if (order.kind == "has-met") {
    if (coordinator_->has_met()) answer.fields.push_back("met");
  } else if (order.kind == "forget") {
    coordinator_->forget(process);
  } else if (order.kind == "silent") {
    append(answer, coordinator_->silent(Duration(order.number(1))));
  } else if (order.kind == "stop") {
    coordinator_->request_stop(static_cast<int>(order.number(1)));
  } else if (order.kind == "forgive") {
    coordinator_->forgive_silence();
  } else if (order.kind == "finish") {
    coordinator_->finish();
  } else {
    refuse_message("is of an unknown kind, " + order.kind);
  }
  if (order.number(0) != 0) send(answer);
}

void CoordinatorProcess::close() {
  closed_ = true;
  orders_.drain();
  if (!coordinator_) return;
  try {
    coordinator_->clear_store();
  } catch (const Error&) {  // the next job begins anew in any case
  }
  coordinator_->close();
}

// The launcher always reads. If it is stopped, so are the ranks.
void CoordinatorProcess::send(const Message& message) {
  std::lock_guard lock(sending_);
  if (!send_message(socket_.get(), message, kLauncherTakes)) _exit(0);
}

}  // namespace

int run_coordinator_process() {
  open_standard_streams();
  outlive_readers();
  // A service manager may send these to all processes of the job. The launcher follows them and tells
  // the ranks through this process, which must not end before.
  sigset_t asked;
  sigemptyset(&asked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP}) sigaddset(&asked, signal);
  sigprocmask(SIG_BLOCK, &asked, nullptr);
  try {
    return CoordinatorProcess(take_standard_input()).run();
  } catch (const Error& error) {
    say(error.what());
    return error.exit_code();
  }
}

}  // namespace trireme::inline v0::launch
