// Communicator: one epoch of a fixed group of ranks, the collectives over it (calls.h) and the
// groups made from it. Methods may be called from any thread of the rank. A failure breaks the
// communicator: every later call fails with the first error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/comm/calls.h"
#include "trireme/kernel/tree_sum.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0 {

namespace plan {
class Tuning;
}

namespace observe {
class Trace;
}
namespace comm {

/// Memory that this group reduces without a copy. All ranks must allocate in the same order.
class Arena {
 public:
  Arena() = default;
  Arena(net::Region region, Device device = {}) : region_(std::move(region)), device_(device) {}
  std::span<std::byte> bytes() const noexcept { return region_.bytes; }
  net::RegionId id() const noexcept { return region_.id; }
  Device device() const noexcept { return device_; }
  /// `count` elements from byte `offset` on, as a Buffer that keeps the arena alive.
  Buffer buffer(std::size_t offset, std::size_t count, DType dtype) const {
    return {region_.bytes.data() + offset, count, dtype, device_, {}, region_.owner};
  }

 private:
  net::Region region_;
  Device device_;
};

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
class DeviceCopies;
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
  /// Records every collective as spans; null: off.
  std::shared_ptr<observe::Trace> trace = nullptr;
  /// Makes what runs calls on the memory of this rank's device. Null: CPU memory only.
  MakeDeviceBackend device = nullptr;
  /// Called, on any thread, each time a wait goes on after `timeout`; default: prints to stderr.
  std::function<void(std::string_view)> on_stall = nullptr;
  /// Called with what every collective does, round by round (run_event.h).
  std::function<void(const RunEvent&)> on_run = nullptr;
};

class Negotiator;

class Communicator final : public Calls {
 public:
  Communicator(std::shared_ptr<net::Transport> transport, CommunicatorOptions options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  const std::string& name() const noexcept;
  std::string_view transport_name() const noexcept;
  /// True if ranks can map one another's arenas, so that the algorithm "direct" is possible.
  bool can_map() const noexcept;
  /// CommunicatorOptions::reproducible. False allows other orders of addition than the tree sum
  /// (docs/numerics.md) where a network or a device's library reduces.
  bool reproducible() const noexcept;
  std::shared_ptr<Waiter> waiter() const;

  /// Collective for CPU memory; local for a device's. Allocates `bytes` zeroed bytes. CPU memory is
  /// reduced in place without a copy where the transport can map it.
  Arena allocate(std::size_t bytes, Device device = {});

  /// From now on, calls on a device's memory that no backend reaches go through the host's memory
  /// (staging/), and a device's buffers without a stream belong to the stream that `copies` names.
  /// Groups that are made later do the same. Before the first such call.
  void stage_through(std::shared_ptr<DeviceCopies> copies);

  /// Says which algorithm `auto` chooses for an all_reduce of `bytes`, and why.
  std::string explain_all_reduce(std::size_t bytes) const;
  /// Groups of some of the ranks. Collectives of different groups may run at the same time. Groups
  /// share the transport of the communicator they were made from, and the first failure breaks them
  /// all with the same error. The original communicator must outlive all groups made from it,
  /// directly or indirectly. A group without open calls may be destroyed at any time.
  ///
  /// Collective. One group per color, ranks ordered by (key, rank); null if color < 0.
  std::shared_ptr<Communicator> split(int color, int key);
  /// Called by the members only: `ranks` of this communicator become 0, 1, ... in this order. If
  /// members give different ranks or names, calls on the group wait until their deadline.
  std::shared_ptr<Communicator> subgroup(std::span<const int> ranks, std::string_view name);

  /// Makes every pending and later Work fail with `error`. Any thread; the first call wins.
  void abort(std::exception_ptr error) noexcept;
  /// The error that broke this communicator, or null.
  std::exception_ptr failure() const noexcept;
  /// Time that user threads of this rank have spent blocked in waits on this communicator.
  Duration time_waited() const noexcept;

 private:
  friend class Negotiator;
  explicit Communicator(std::shared_ptr<Engine> engine);
};

}  // namespace comm
}  // namespace trireme::inline v0
