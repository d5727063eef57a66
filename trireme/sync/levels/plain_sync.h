// PlainSync: plain data parallel. Every rank holds everything; gradients are reduced in buckets
// while backward still runs.
//
// Leaves go straight into the slots of a LeafPlan, in arenas of the communicator, so that the
// direct algorithm reduces them in place. In the rank's last micro-batch the hook launches each
// complete bucket, in one order on all ranks: rank 0's arrival order in the first step, broadcast.
// A bucket that completes early waits for its turn. Uses of a tied parameter are added in block
// order after the tree sum.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/sync/compression/compressor.h"
#include "trireme/sync/levels/bucketed_sync.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::parallel {

/// Communicator::all_reduce over terms; tests substitute a wrong one.
using ReduceTerms =
    std::function<Work(comm::Communicator& world, std::span<const comm::Term> terms,
                       const kernel::LeafShares& leaves, Buffer out, std::string_view label)>;
Work tree_reduce(comm::Communicator& world, std::span<const comm::Term> terms,
                 const kernel::LeafShares& leaves, Buffer out, std::string_view label);

struct PlainSyncOptions {
  std::int64_t bucket_bytes = 4 << 20;
  bool overlap = true;  // false: nothing is reduced before finish()
  ReduceTerms reduce = tree_reduce;
  /// Called once per step, in the hook's thread, before this rank launches its first bucket; its
  /// Work is part of finish(). Must not wait.
  std::function<Work()> before_launch = {};
  std::string compression = "none";  // make_compressor's spec
  std::uint64_t seed = 1;            // of compression's random numbers
};

struct SyncSetup;

class PlainSync : public BucketedSync {
 public:
  explicit PlainSync(const SyncSetup& setup);
  /// `uses[b]` are block b's accumulators. `slices` are what the optimizer updates; their gradient
  /// pointers are set here. `parameter_of[b][i]` is the slice that use (b, i) adds to, in block
  /// order. Collective: allocates arenas here and in reserve().
  PlainSync(comm::Communicator& world, std::vector<std::vector<Accumulated>> uses,
            std::vector<std::vector<std::uint32_t>> parameter_of,
            std::vector<optim::OwnedSlice> slices, PlainSyncOptions options);

  void reserve(std::uint32_t total) override;
  void begin(std::uint32_t total, std::span<const Use> order) override;
  Pin acquire(Use) override { return {}; }  // everything is here
  void end_micro() override;
  void end_pass(std::uint32_t, Phase) override {}
  Work finish() override;
  std::vector<double> chunk_squares() override;
  std::int64_t first_overflow() override;
  void drop() override;
  Work publish() override;
  /// Null: gradients are not compressed.
  Compressor* compressor() const { return compressor_.get(); }

 protected:
  /// From the next begin() on, owned()'s gradients are the whole batch's (true, the default), or
  /// the sum over this rank's own share, T over its leaves, and only before_launch communicates.
  /// All ranks change together.
  void reduce_over_ranks(bool over_ranks) { alone_ = !over_ranks; }
  /// The tree sum of owned()[slice]; the Buffer keeps the arena alive.
  Buffer sum_of(std::size_t slice) const;

 private:
  std::vector<BucketShape> bucket_shapes() const;
  int most_slots(std::uint32_t total) const;
  bool launches() const override { return options_.overlap && order_known_ && last_round(); }
  void launch(std::uint32_t bucket) override;
  void launch_compressed(std::uint32_t bucket, std::span<const comm::Term> terms,
                         const Buffer& out);
  void learn_order();

  comm::Communicator& world_;
  const PlainSyncOptions options_;
  std::unique_ptr<Compressor> compressor_;  // null: the tree sum
  bool alone_ = false;                      // nothing is reduced over the ranks
  bool order_known_ = false;                // launch_order_ is rank 0's arrival order
};

/// The compressors of those that have one.
std::vector<Compressor*> compressors_of(std::span<ParameterSync* const> syncs);

}  // namespace trireme::inline v0::parallel
