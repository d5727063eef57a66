#include "trireme/launch/rank_end.h"

#include <signal.h>

#include <cstring>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0::launch {
namespace {

constexpr int kLastOwnCode = 179;  // of ExitCode; beyond it a program's own, as 255 of exit(-1)

std::string sentence_of(const std::string& name, const std::string& host, const std::string& what,
                        const rendezvous::Activity& activity, const std::string& advice) {
  std::string text = name + " on host " + host + " " + what;
  if (activity.step >= 0) text += " at step " + std::to_string(activity.step);
  if (activity.waiting) {
    text += " in " + activity.operation;
  } else if (!activity.last_call.empty()) {
    text += " in user code after " + activity.last_call;
  }
  return text + ". " + advice;
}

std::string advice_for(int signal) {
  switch (signal) {
    case SIGKILL:
      return "If nobody killed it, look in `dmesg` for the out-of-memory killer; resume from the "
             "last checkpoint.";
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGABRT:
      return "Run that rank in gdb, or look at its core file.";
    default:
      return "Resume from the last checkpoint.";
  }
}

}  // namespace

std::string name_of(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

std::string how_it_ended(const Exit& exit) {
  if (exit.signal == 0) return "ended with exit code " + std::to_string(exit.code);
  return "was killed by signal " + std::to_string(exit.signal) + " (" + name_of(exit.signal) + ")";
}

bool may_come_back(const Exit& exit) {
  return exit.signal != 0 ||
         (exit.code >= static_cast<int>(ExitCode::PeerLost) && exit.code <= kLastOwnCode);
}

rendezvous::Failure failure_of(int process, const rendezvous::Roles& roles, const std::string& host,
                               const Ending& ending) {
  const Exit& exit = ending.exit;
  const rendezvous::Activity& activity = ending.activity;
  const std::string what = how_it_ended(exit);
  const std::string advice = exit.signal != 0 ? advice_for(exit.signal) : "See its own last lines.";
  std::string sentence = exit.signal == 0 ? ending.last_words : std::string();
  if (sentence.empty())
    sentence = sentence_of(roles.name_of(process), host, what, activity, advice);
  return {process,
          host,
          activity.step,
          activity.waiting ? activity.operation : activity.last_call,
          std::move(sentence),
          exit.code};
}

}  // namespace trireme::inline v0::launch
