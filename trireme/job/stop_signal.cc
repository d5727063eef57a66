#include "trireme/job/stop_signal.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

#include "trireme/base/end_by_signal.h"

namespace trireme::inline v0::job {
namespace {

constexpr int kTimeIsUp = -1;  // used instead of a signal
constexpr Duration kSameRequest = std::chrono::seconds(1);

std::atomic<int> arrived{0};  // the first signal, or kTimeIsUp
// When this process itself received the first SIGINT or SIGTERM.
std::atomic<std::int64_t> first_at{0};
std::atomic<std::int64_t> time_ends{INT64_MAX};
std::string time_limit;  // written before time_ends

std::int64_t now() noexcept { return steady_now().time_since_epoch().count(); }

// Whether this is a second request to stop. A terminal sends one signal for each Ctrl-C.
bool asks_again(int signal, bool from_terminal) noexcept {
  if (signal != SIGINT && signal != SIGTERM) return false;
  std::int64_t first = 0;
  if (first_at.compare_exchange_strong(first, now())) return false;
  return from_terminal || now() - first >= kSameRequest.count();
}

void on_signal(int signal, siginfo_t* info, void*) {
  if (asks_again(signal, info->si_code == SI_KERNEL)) end_by(signal);
  note_stop_signal(signal);
}

bool install() noexcept {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    // Keep the program's own handler, and signals that the parent ignores.
    if (now.sa_handler == SIG_DFL || now.sa_handler == end_by) sigaction(signal, &action, nullptr);
  }
  return true;
}

}  // namespace

void note_stop_signal(int signal) noexcept {
  int none = 0;
  arrived.compare_exchange_strong(none, signal);
}

int stop_signal() noexcept {
  static const bool installed = install();
  static_cast<void>(installed);
  if (arrived.load() == 0 && now() >= time_ends.load()) note_stop_signal(kTimeIsUp);
  const int first = arrived.load();
  return first == 0 ? 0 : 128 + (first == SIGINT ? SIGINT : SIGTERM);
}

void stop_at(TimePoint when, std::string cause) {
  time_limit = std::move(cause);
  time_ends = when.time_since_epoch().count();
}

std::string stop_cause() {
  const int first = arrived.load();
  if (first == 0) return "a signal to another rank";
  if (first == kTimeIsUp) return time_limit;
  const char* name = sigabbrev_np(first);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(first);
}

}  // namespace trireme::inline v0::job
