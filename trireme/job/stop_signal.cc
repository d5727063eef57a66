#include "trireme/job/stop_signal.h"

#include <signal.h>

#include <atomic>

namespace trireme {
inline namespace v0 {
namespace job {
namespace {

std::atomic<int> arrived{0};
std::atomic<int> handled{0};  // signals that came to this process itself

void on_signal(int signal) {
  if (handled.fetch_add(1) > 0) {
    ::signal(signal, SIG_DFL);
    raise(signal);
  }
  note_stop_signal(signal);
}

bool install() noexcept {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    // Somebody's own handler, or a parent that wants it ignored, has the first word.
    if (now.sa_handler == SIG_DFL) sigaction(signal, &action, nullptr);
  }
  return true;
}

}  // namespace

void note_stop_signal(int signal) noexcept {
  int none = 0;
  arrived.compare_exchange_strong(none, 128 + signal);
}

int stop_signal() noexcept {
  static const bool installed = install();
  static_cast<void>(installed);
  return arrived.load();
}

}  // namespace job
}  // namespace v0
}  // namespace trireme
