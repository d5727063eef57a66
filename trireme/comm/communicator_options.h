// The options of a Communicator, and the PeerWatch that it asks about its peers. In a program, the
// Job makes the communicators.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme::inline v0 {

namespace plan {
class Tuning;
}
namespace observe {
class Trace;
}
namespace comm {

/// Knowledge about the peers beyond the transport. The communicator asks it when a wait has
/// timed out, and reports to it when this rank blocks. Implemented by the Job, and by tests.
class PeerWatch {
 public:
  struct Verdict {
    bool keep_waiting = false;  // a peer is alive in user code, or stopped in a debugger
    std::string explanation;    // "rank 0 is in user code since 45 s (last call ...)"
    int lost_rank = -1;         // a peer is known to be dead
  };
  virtual ~PeerWatch() = default;
  virtual Verdict ask(std::string_view operation, Duration waited) = 0;
  /// This rank begins (true) or ends (false) a blocking wait for `operation`.
  virtual void activity(std::string_view operation, bool waiting) noexcept = 0;
};

struct RunEvent;
class DeviceBackend;
class Engine;
using MakeDeviceBackend = std::function<std::shared_ptr<DeviceBackend>(Engine&)>;

struct CommunicatorOptions {
  std::string name = "world";
  /// "auto", "direct", the name of a registered algorithm (registry.h), or a backend's own
  /// (selection.h).
  std::string algorithm = "auto";
  Duration timeout = std::chrono::seconds(30);
  std::uint32_t epoch = 0;
  std::shared_ptr<PeerWatch> watch = nullptr;
  std::vector<std::string> host_of_rank = {};
  /// The world's number of each rank, which errors print. Empty: the ranks of this communicator.
  std::vector<int> world_ranks = {};
  bool reproducible = true;
  /// Measured times by which `auto` chooses; the same on all ranks. Null: it uses cost formulas.
  std::shared_ptr<const plan::Tuning> tuning = nullptr;
  /// Records every collective and message as spans; null: off.
  std::shared_ptr<observe::Trace> trace = nullptr;
  /// Makes the backend for the memory of this rank's device. Null: CPU memory only.
  MakeDeviceBackend device = nullptr;
  /// Called, on any thread, each time a wait goes on after `timeout`; default: prints to stderr.
  std::function<void(std::string_view)> on_stall = nullptr;
  /// Called with what every collective does, round by round (run_event.h).
  std::function<void(const RunEvent&)> on_run = nullptr;
};

}  // namespace comm
}  // namespace trireme::inline v0
