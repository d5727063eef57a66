// Communicator: one epoch of a fixed group of ranks, and the collectives over it.
//
// Each typed method fills in an Operation and submits it. Methods may be called from any thread of
// the rank, but all ranks must call the same operations in the same order; a mismatch fails with a
// MismatchError that prints both calls. Buffers must stay valid until the Work is done. A failure
// breaks the communicator: every later call fails with the first error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/base/work.h"
#include "trireme/comm/op_kind.h"
#include "trireme/kernel/tree_sum.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0 {

enum class ReduceOp : std::uint8_t { Sum, Mean, Min, Max, Product };
inline constexpr ReduceOp Sum = ReduceOp::Sum;
inline constexpr ReduceOp Mean = ReduceOp::Mean;
inline constexpr ReduceOp Min = ReduceOp::Min;
inline constexpr ReduceOp Max = ReduceOp::Max;
inline constexpr ReduceOp Product = ReduceOp::Product;

namespace plan {
class Tuning;
}

namespace observe {
class Trace;
}
namespace comm {

/// The sum of leaves first ... first+count-1 of the tree sum (docs/numerics.md).
struct Term {
  Buffer value;
  std::uint32_t first = 0, count = 1;
};

struct OpOptions {
  std::string_view label = {};  // "bucket 2": printed in errors and traces
  Deadline deadline = Deadline::job();
  std::string_view algorithm = {};  // overrides the communicator's choice
  /// This is the rank's last call, since its loop has ended. Peers that make a different call fail
  /// at once with UnevenInput, which names this rank.
  bool leaving = false;
};

/// Memory that this group reduces without a copy. All ranks must allocate in the same order.
class Arena {
 public:
  Arena() = default;
  Arena(net::Region region, Device device = {}) : region_(std::move(region)), device_(device) {}
  std::span<std::byte> bytes() const noexcept { return region_.bytes; }
  net::RegionId id() const noexcept { return region_.id; }
  /// `count` elements from byte `offset` on, as a Buffer that keeps the arena alive.
  Buffer buffer(std::size_t offset, std::size_t count, DType dtype) const {
    return {region_.bytes.data() + offset, count, dtype, device_, {}, region_.owner};
  }

 private:
  net::Region region_;
  Device device_;
};

/// What is known about the peers beyond the transport. The communicator asks it when a wait has
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
class Selection;
struct Operation;
struct SparseRows;
struct SparseOptions;

class Communicator final {
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

  /// Reduces in place. Each rank brings one leaf; every rank ends with the same bits.
  Work all_reduce(Buffer inout, ReduceOp op, const OpOptions& options = {});
  /// The tree sum over `total` leaves. This rank's terms must be the maximal nodes of
  /// contiguous_share(total, size, rank), ascending (none if its share is empty). `out` may be the
  /// first term's buffer. Overwrites the term buffers.
  Work all_reduce(std::span<const Term> terms, std::uint32_t total, Buffer out,
                  const OpOptions& options = {});
  Work broadcast(Buffer inout, int root, const OpOptions& options = {});
  /// out.count == size * in.count, in rank order.
  Work all_gather(Buffer in, Buffer out, const OpOptions& options = {});
  /// As all_gather, with counts[r] elements from rank r, back to back in `out`.
  Work all_gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts,
                    const OpOptions& options = {});
  /// in.count == size * out.count; rank r gets the reduction of piece r over all ranks.
  Work reduce_scatter(Buffer in, Buffer out, ReduceOp op, const OpOptions& options = {});
  /// As reduce_scatter, with pieces of counts[r] elements, back to back in `in`.
  Work reduce_scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts, ReduceOp op,
                        const OpOptions& options = {});
  /// Reduces into rank `root`'s `out`; the other ranks' `out` is ignored. `in` keeps its values.
  Work reduce(Buffer in, Buffer out, ReduceOp op, int root, const OpOptions& options = {});
  /// Rank `root`'s `out` receives every rank's `in`, in rank order; other ranks' `out` is ignored.
  Work gather(Buffer in, Buffer out, int root, const OpOptions& options = {});
  Work gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts, int root,
                const OpOptions& options = {});
  /// Rank r's `out` receives piece r of rank `root`'s `in`; other ranks' `in` is ignored.
  Work scatter(Buffer in, Buffer out, int root, const OpOptions& options = {});
  Work scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts, int root,
                 const OpOptions& options = {});
  /// Sends piece r of `in` to rank r; `out` receives one piece from each rank, in rank order. `in`
  /// and `out` must not overlap. all_to_all cuts equal pieces. all_to_all_v sends send_counts[r]
  /// elements to rank r and receives recv_counts[r]; if the counts of a pair of ranks disagree, it
  /// fails with MismatchError before any data moves.
  Work all_to_all(Buffer in, Buffer out, const OpOptions& options = {});
  Work all_to_all_v(Buffer in, Buffer out, std::span<const std::size_t> send_counts,
                    std::span<const std::size_t> recv_counts, const OpOptions& options = {});
  /// All-reduces each buffer in place, as one call. Small buffers of one type are packed together
  /// (on a device, each buffer is its own call). The bits are those of separate calls. All ranks
  /// must give the same counts and types in the same order.
  Work all_reduce_many(std::span<const Buffer> buffers, ReduceOp op, const OpOptions& options = {});
  /// Adds up rows of a large matrix, of which every rank brings some (sparse.h).
  Work sparse_all_reduce(const SparseRows& in, SparseRows& out, ReduceOp op,
                         const SparseOptions& options);
  Work barrier(const OpOptions& options = {});
  /// Says which algorithm `auto` chooses for an all_reduce of `bytes`, and why.
  std::string explain_all_reduce(std::size_t bytes) const;
  Work send(Buffer buffer, int peer, std::uint32_t tag = 0, const OpOptions& options = {});
  Work recv(Buffer buffer, int peer, std::uint32_t tag = 0, const OpOptions& options = {});

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
  Work submit(Operation&& operation, const OpOptions& options);
  Work run(Operation&& operation, Buffer in, Buffer out, std::string_view usual,
           const OpOptions& options);
  Operation message(OpKind kind, const Buffer& buffer, int peer, std::uint32_t tag,
                    const OpOptions& options) const;
  void require_reducible(DType dtype, ReduceOp op, std::string_view operation) const;
  void require_counts(std::span<const std::size_t> counts, std::string_view operation) const;
  void require_root(int root, std::string_view operation) const;
  /// `what`: the error text, or a function that returns it, called only if the call is refused.
  template <class What>
  void require(bool condition, std::string_view operation, const What& what) const {
    if (condition) return;
    if constexpr (std::is_invocable_v<What>) {
      refuse(operation, what());
    } else {
      refuse(operation, what);
    }
  }
  [[noreturn]] void refuse(std::string_view operation, const std::string& what) const;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const Selection> selection_;
};

}  // namespace comm
}  // namespace trireme::inline v0
