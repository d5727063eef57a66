// Host: one host of a job, which starts processes and signals them. The Supervisor decides; a
// LocalHost does it here, a RemoteHost through ssh. Methods and callbacks run in the progress
// context of the Supervisor's waiter.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/hosts/sources.h"
#include "trireme/rendezvous/status_page.h"

namespace trireme::inline v0::launch {

/// Lost: a process has ended with its host. NotReached: it could not be started there.
enum class HostLoss : std::uint8_t { None, Lost, NotReached };

/// How a process ended. `last_words`: its last message; may be empty.
struct Ending {
  Exit exit;
  rendezvous::Activity activity = {};
  std::string last_words = {};
  HostLoss host = HostLoss::None;
};

struct HostEvents {
  std::function<void(int process, bool error, std::string_view line)> on_line;
  /// `pid` is -1 for a process on another host.
  std::function<void(int process, pid_t pid)> on_start;
  std::function<void(int process, const Ending& ending)> on_end;
};

struct StartOptions {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // "NAME=value", added to that of the host
  bool direct = false;                   // uses this process's standard output and error
  bool reads = false;                    // uses this process's standard input
  std::vector<int> inherit = {};
};

class Host {
 public:
  virtual ~Host() = default;
  /// Throws ConfigError or ResourceError if the process cannot be started here; on another host,
  /// on_end reports it.
  virtual void start(int process, const StartOptions& options) = 0;
  /// Signals the process, or its whole group; no effect if it does not run.
  virtual void signal(int process, int signal, bool group) = 0;
};

}  // namespace trireme::inline v0::launch
