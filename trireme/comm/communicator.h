// Communicator: the collectives and messages between the ranks of a fixed group, and the groups
// made from it.
//
// Methods may be called from any thread of the rank, but all ranks must call the same operations in
// the same order; a mismatch fails with a MismatchError that prints both calls. Buffers must stay
// valid until the Work is done. ConfigError if the arguments are invalid. A failure breaks the
// communicator: every later call fails with the first error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/buffer.h"
#include "trireme/base/clock.h"
#include "trireme/base/work.h"

namespace trireme::inline v0 {

class Waiter;
enum class ExitCode : int;

namespace kernel {
struct LeafShares;
}
namespace net {
class Transport;
}

/// How a collective combines the ranks' elements.
enum class ReduceOp : std::uint8_t { Sum, Mean, Min, Max, Product };
inline constexpr ReduceOp Sum = ReduceOp::Sum;
inline constexpr ReduceOp Mean = ReduceOp::Mean;
inline constexpr ReduceOp Min = ReduceOp::Min;
inline constexpr ReduceOp Max = ReduceOp::Max;
inline constexpr ReduceOp Product = ReduceOp::Product;

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
  /// This is the rank's last call: its loop has ended (Done), or it failed with this exit code.
  /// Peers that make a different call fail at once with an error that names this rank: UnevenInput
  /// after Done, else the error of the exit code.
  std::optional<ExitCode> leaving = {};
};

class CallChecks;
struct CommunicatorOptions;
class DeviceCopies;
class Engine;
class Negotiator;
enum class OpKind : std::uint8_t;
struct Operation;
class Selection;
struct SparseOptions;
struct SparseRows;

/// The collectives and messages of a Communicator.
class Calls {
 public:
  Calls(const Calls&) = delete;
  /// Reduces in place. Each rank brings one leaf; every rank ends with the same bits.
  Work all_reduce(Buffer inout, ReduceOp op, const OpOptions& options = {});
  /// The tree sum over `total` leaves. This rank's terms must be the maximal nodes of
  /// contiguous_share(total, size, rank), ascending (none if its share is empty). `out` may be the
  /// first term's buffer. Overwrites the term buffers.
  Work all_reduce(std::span<const Term> terms, std::uint32_t total, Buffer out,
                  const OpOptions& options = {});
  /// The same for unequal shares of the leaves.
  Work all_reduce(std::span<const Term> terms, const kernel::LeafShares& leaves, Buffer out,
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
  /// Adds rows of a large matrix; every rank brings some of them (collectives.h).
  Work sparse_all_reduce(const SparseRows& in, SparseRows& out, ReduceOp op,
                         const SparseOptions& options);
  Work barrier(const OpOptions& options = {});
  /// Messages are not in the order of the collectives. A receive takes the peer's next message with
  /// the same tag; MismatchError if its count or type differs.
  Work send(Buffer buffer, int peer, std::uint32_t tag = 0, const OpOptions& options = {});
  Work recv(Buffer buffer, int peer, std::uint32_t tag = 0, const OpOptions& options = {});

 protected:
  explicit Calls(std::shared_ptr<Engine> engine);
  ~Calls();
  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<const Selection> selection_;
  const int rank_, size_;
  const std::unique_ptr<const CallChecks> checks_;

 private:
  Work submit(Operation&& operation, const OpOptions& options);
  Work run(Operation&& operation, Buffer in, Buffer out, std::string_view usual,
           const OpOptions& options);
  Operation message(OpKind kind, const Buffer& buffer, int peer, std::uint32_t tag,
                    const OpOptions& options) const;
};

/// Memory that this group reduces without a copy. All ranks must allocate in the same order.
class Arena {
 public:
  Arena() = default;
  Arena(std::span<std::byte> bytes, std::shared_ptr<void> owner, Device device = {})
      : bytes_(bytes), owner_(std::move(owner)), device_(device) {}
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }
  /// `count` elements from byte `offset` on, as a Buffer that keeps the arena alive.
  Buffer buffer(std::size_t offset, std::size_t count, DType dtype) const {
    return {bytes_.data() + offset, count, dtype, device_, {}, owner_};
  }

 private:
  std::span<std::byte> bytes_;
  std::shared_ptr<void> owner_;
  Device device_;
};

class Communicator final : public Calls {
 public:
  /// One epoch of the group (communicator_options.h).
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

  /// Collective for CPU memory; local for a device's. Allocates `bytes` zeroed bytes; CPU memory is
  /// reduced in place where the transport can map it. ResourceError if there is not enough: if peers
  /// would have mapped it, that breaks all groups of this communicator's family, here and there.
  Arena allocate(std::size_t bytes, Device device = {});

  /// From now on, calls on a device's memory that no backend reaches go through the host's memory
  /// (staging/), and a device's buffers without a stream belong to the stream that `copies` names.
  /// Groups that are made later do the same. Must come before the first call on such memory.
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
