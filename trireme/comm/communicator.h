// Communicator: one epoch of a fixed group of ranks, and the collectives over it.
//
// Typed methods fill one Operation; the fingerprint, the deadline, the choice of algorithm and the
// trace happen once, in submit(). Methods may be called from any thread of the rank, but all ranks
// must call the same operations in the same order (a mismatch is refused with both sides' call).
// Buffers must stay valid until the Work is done. A failure makes the communicator broken: every
// later call fails with the first error.
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

namespace trireme {
inline namespace v0 {

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

/// Leaves first ... first+count-1 of the tree sum (NUMERICS.md), already added up.
struct Term {
  Buffer value;
  std::uint32_t first = 0, count = 1;
};

struct OpOptions {
  std::string_view label = {};  // "bucket 2": printed in errors and traces
  Deadline deadline = Deadline::job();
  std::string_view algorithm = {};  // overrides the communicator's choice
  /// This rank's last call: its loop has ended. Peers that make another call get UnevenInput naming
  /// it, at once.
  bool leaving = false;
};

/// Memory that this group reduces without a copy. All ranks allocate in the same order.
class Arena {
 public:
  Arena() = default;
  Arena(net::Region region, Device device = {}) : region_(std::move(region)), device_(device) {}
  std::span<std::byte> bytes() const noexcept { return region_.bytes; }
  net::RegionId id() const noexcept { return region_.id; }
  /// Elements [offset, offset + count) as a Buffer that keeps the arena alive. Offset in bytes.
  Buffer buffer(std::size_t offset, std::size_t count, DType dtype) const {
    return {region_.bytes.data() + offset, count, dtype, device_, {}, region_.owner};
  }

 private:
  net::Region region_;
  Device device_;
};

/// What a communicator knows of its peers beyond its transport: asked when a wait ran out, and told
/// what the rank is doing. The Job implements it; tests may.
class PeerWatch {
 public:
  struct Verdict {
    bool keep_waiting = false;  // a peer is alive in user code, or stopped in a debugger
    std::string explanation;    // "rank 0 is in user code since 45 s (last call ...)"
    int lost_rank = -1;         // a peer is known to be dead
  };
  virtual ~PeerWatch() = default;
  virtual Verdict ask(std::string_view operation, Duration waited) = 0;
  /// This rank enters (true) or leaves (false) a blocking wait for `operation`.
  virtual void activity(std::string_view operation, bool waiting) noexcept = 0;
};

struct RunEvent;
namespace nccl {
class Gpu;
}

struct CommunicatorOptions {
  std::string name = "world";
  /// auto | direct | a registered one (registry.h) | nccl-native: GPU memory is reduced by NCCL's
  /// own order of additions, CPU memory as by auto | mpi-native (native_run.h): by MPI's own.
  std::string algorithm = "auto";
  Duration timeout = std::chrono::seconds(30);
  std::uint32_t epoch = 0;
  std::shared_ptr<PeerWatch> watch = nullptr;
  std::vector<std::string> host_of_rank = {};
  /// Numbers by which errors name the ranks: a group's are its world's. Empty: their own.
  std::vector<int> world_ranks = {};
  bool reproducible = true;
  /// Measured times that `auto` goes by; the same on all ranks. Null: the cost formulas.
  std::shared_ptr<const plan::Tuning> tuning = nullptr;
  /// Where every collective is recorded as spans; null = off.
  std::shared_ptr<observe::Trace> trace = nullptr;
  /// This rank's GPU: buffers on it travel over NCCL. Null: CPU memory only.
  std::shared_ptr<nccl::Gpu> gpu = nullptr;
  /// Told every `timeout` why a wait goes on; default: a line on stderr. Any thread.
  std::function<void(std::string_view)> on_stall = nullptr;
  /// Told what every collective does, round by round (run_event.h); nothing is told where empty.
  std::function<void(const RunEvent&)> on_run = nullptr;
};

class Engine;
class Chooser;
class Negotiator;
class SharedResult;
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
  /// True where ranks reach one another's arenas: the algorithm "direct" is possible.
  bool can_map() const noexcept;
  /// Sums are the tree sum of NUMERICS.md, whatever the ranks; false: the fastest order.
  bool reproducible() const noexcept;
  std::shared_ptr<Waiter> waiter() const;

  /// Collective. Zeroed; reduced in place without a copy where the transport can map it. On a GPU:
  /// memory of this rank alone, and no collective.
  Arena allocate(std::size_t bytes, Device device = {});

  /// One leaf per rank; every rank ends with the same bits.
  Work all_reduce(Buffer inout, ReduceOp op, const OpOptions& options = {});
  /// The tree sum over `total` leaves. This rank's terms are the maximal nodes of
  /// contiguous_share(total, size, rank), ascending (none where its share is empty). `out` may be
  /// the first term's buffer. Term buffers are scratch afterwards.
  Work all_reduce(std::span<const Term> terms, std::uint32_t total, Buffer out,
                  const OpOptions& options = {});
  Work broadcast(Buffer inout, int root, const OpOptions& options = {});
  /// out.count == size * in.count, in rank order.
  Work all_gather(Buffer in, Buffer out, const OpOptions& options = {});
  /// Pieces of different counts (counts[r] elements from rank r), back to back in `out`.
  Work all_gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts,
                    const OpOptions& options = {});
  /// in.count == size * out.count; rank r gets the sum of every rank's piece r.
  Work reduce_scatter(Buffer in, Buffer out, ReduceOp op, const OpOptions& options = {});
  /// Pieces of different counts, back to back in `in`; rank r gets the sum of everybody's piece r.
  Work reduce_scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts, ReduceOp op,
                        const OpOptions& options = {});
  /// The sum in rank `root`'s `out`; the others' is not looked at. `in` keeps its values.
  Work reduce(Buffer in, Buffer out, ReduceOp op, int root, const OpOptions& options = {});
  /// Every rank's `in` in rank order in rank `root`'s `out`, which the others may leave empty.
  Work gather(Buffer in, Buffer out, int root, const OpOptions& options = {});
  Work gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts, int root,
                const OpOptions& options = {});
  /// Piece r of rank `root`'s `in` in rank r's `out`; the others may leave `in` empty.
  Work scatter(Buffer in, Buffer out, int root, const OpOptions& options = {});
  Work scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts, int root,
                 const OpOptions& options = {});
  /// Piece r of `in` goes to rank r; `out` holds what came, in rank order. `in` and `out` may not
  /// overlap. Pieces are equal, or of send_counts[r] and recv_counts[r] elements: each rank knows
  /// its own, and a pair that disagrees is refused before any data moves.
  Work all_to_all(Buffer in, Buffer out, const OpOptions& options = {});
  Work all_to_all_v(Buffer in, Buffer out, std::span<const std::size_t> send_counts,
                    std::span<const std::size_t> recv_counts, const OpOptions& options = {});
  /// all_reduce of each, in place, as one call: small ones travel together, packed by type (on a
  /// GPU each is a call of its own). The same bits as one by one. All ranks give the same counts
  /// and types in the same order.
  Work all_reduce_many(std::span<const Buffer> buffers, ReduceOp op, const OpOptions& options = {});
  /// Collective: waits for the others. Memory for results that live once per host; shared_result.h
  /// says for how long one stands. All ranks give the same number of bytes.
  SharedResult allocate_shared(std::size_t bytes);
  /// As all_reduce, into `out`, which all ranks of the host read; `in` keeps its values.
  Work all_reduce_shared(Buffer in, const SharedResult& out, ReduceOp op,
                         const OpOptions& options = {});
  /// As broadcast; `in` is rank `root`'s, of the others only count and type are looked at.
  Work broadcast_shared(Buffer in, const SharedResult& out, int root,
                        const OpOptions& options = {});
  /// As all_gather: every rank's `in`, in rank order.
  Work all_gather_shared(Buffer in, const SharedResult& out, const OpOptions& options = {});
  /// Rows of a large matrix, of which every rank brings some: sparse.h.
  Work sparse_all_reduce(const SparseRows& in, SparseRows& out, ReduceOp op,
                         const SparseOptions& options);
  Work barrier(const OpOptions& options = {});
  /// Why `auto` takes the algorithm that it takes for an all_reduce of `bytes`.
  std::string explain_all_reduce(std::size_t bytes) const;
  Work send(Buffer buffer, int peer, std::uint32_t tag = 0, const OpOptions& options = {});
  Work recv(Buffer buffer, int peer, std::uint32_t tag = 0, const OpOptions& options = {});

  /// Groups of some of the ranks (collectives of theirs may run at the same time as others'). They
  /// share this communicator's transport, so the first failure in one of them breaks all, this one
  /// too, with the same error; and they end with the communicator that they all stem from, which
  /// must outlive them. To let go of a group on which nothing is open disturbs nobody.
  ///
  /// Collective. One group per color, ranks ordered by (key, rank); null where color < 0.
  std::shared_ptr<Communicator> split(int color, int key);
  /// Over its members only: `ranks` of this communicator become 0, 1, … in this order. Members that
  /// name other ranks, another name or come more often than the rest wait for their deadline.
  std::shared_ptr<Communicator> subgroup(std::span<const int> ranks, std::string_view name);

  /// Every pending and later Work fails with `error`. Safe from any thread; the first call wins.
  void abort(std::exception_ptr error) noexcept;
  /// The error that broke it, or null.
  std::exception_ptr failure() const noexcept;
  /// Nanoseconds that user threads of this rank have spent blocked in waits on this communicator.
  Duration time_waited() const noexcept;

 private:
  friend class Negotiator;
  explicit Communicator(std::shared_ptr<Engine> engine);
  bool may_be_direct(OpKind kind, const OpOptions& options) const;
  Work submit(Operation operation, const OpOptions& options);
  void place(Operation& operation, const OpOptions& options) const;
  struct Reduced {
    ReduceOp op = ReduceOp::Sum;
    DType dtype = DType::F32;
    std::size_t bytes = 0;
    std::uint32_t total = 1;  // leaves
  };
  std::string choose(std::string_view wanted, const Reduced& what) const;
  std::string why_not_native(const Reduced& what) const;
  std::string pick(OpKind kind, const OpOptions& options, std::string_view usual) const;
  void require_reducible(DType dtype, ReduceOp op, std::string_view operation) const;
  void require_counts(std::span<const std::size_t> counts, std::string_view operation) const;
  void require_root(int root, std::string_view operation) const;
  void require_on_cpu(const Buffer& buffer, std::string_view operation) const;
  void require_room(const SharedResult& out, std::size_t bytes, std::string_view operation) const;
  Operation shared_step(OpKind kind, OpKind called, const Buffer& in, const SharedResult& out,
                        std::vector<std::size_t> counts, const OpOptions& options) const;
  /// `what`: a text, or what makes one: most calls are right and need none.
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
  std::shared_ptr<const Chooser> chooser_;
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
