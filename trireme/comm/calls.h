// Calls: the collectives and messages between the ranks of a group. A Communicator is one.
//
// Each method checks its arguments (CallChecks) and submits an Operation. Methods may be called
// from any thread of the rank, but all ranks must call the same operations in the same order; a
// mismatch fails with a MismatchError that prints both calls. Buffers must stay valid until the
// Work is done. ConfigError if the arguments cannot be right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "trireme/base/buffer.h"
#include "trireme/base/work.h"
#include "trireme/comm/op_kind.h"
#include "trireme/comm/reduce_op.h"

namespace trireme::inline v0 {
namespace kernel {
struct LeafShares;
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

class CallChecks;
class Engine;
class Selection;
struct Operation;
struct SparseRows;
struct SparseOptions;

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
  /// The same if the ranks' shares of the leaves are not equal.
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
  /// Adds up rows of a large matrix, of which every rank brings some (sparse.h).
  Work sparse_all_reduce(const SparseRows& in, SparseRows& out, ReduceOp op,
                         const SparseOptions& options);
  Work barrier(const OpOptions& options = {});
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

}  // namespace comm
}  // namespace trireme::inline v0
