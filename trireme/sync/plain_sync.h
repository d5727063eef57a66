// PlainSync: plain data parallel. Every rank holds everything; gradients are reduced in buckets
// while backward still runs.
//
// Leaves go straight into the slots of a LeafPlan, one stack of slots per bucket, in arenas of the
// communicator, so that the direct algorithm reduces them in place. In the rank's last micro-batch
// the hook launches each complete bucket, in one order on all ranks: rank 0's arrival order in the
// first step, broadcast. A bucket that completes early waits for its turn. Uses of a tied parameter
// are added in block order after the tree sum.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/sync/bucket_layout.h"
#include "trireme/sync/compression/compressor.h"
#include "trireme/sync/leaf_plan.h"
#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

/// Communicator::all_reduce over terms; tests substitute a wrong one.
using ReduceTerms = std::function<Work(comm::Communicator& world, std::span<const comm::Term> terms,
                                       std::uint32_t total, Buffer out, std::string_view label)>;
Work tree_reduce(comm::Communicator& world, std::span<const comm::Term> terms, std::uint32_t total,
                 Buffer out, std::string_view label);

struct PlainSyncOptions {
  std::int64_t bucket_bytes = 4 << 20;
  bool overlap = true;  // false: nothing is reduced before finish()
  ReduceTerms reduce = tree_reduce;
  /// Called once per step, in the hook's thread, before this rank launches its first bucket; its
  /// Work is part of finish().
  std::function<Work()> before_launch = {};
  std::string compression = "none";  // make_compressor's spec
  std::uint64_t seed = 1;            // of compression's random numbers
};

class PlainSync final : public ParameterSync {
 public:
  /// `uses[b]` are block b's accumulators. `slices` are what the optimizer updates; their gradient
  /// pointers are set here. `parameter_of[b][i]` is the slice that use (b, i) adds to, in block
  /// order. Collective: allocates arenas here, and in begin() if a batch has more micro-batches.
  PlainSync(comm::Communicator& world, std::vector<std::vector<Accumulated>> uses,
            std::vector<std::vector<std::uint32_t>> parameter_of,
            std::vector<optim::OwnedSlice> slices, PlainSyncOptions options);

  /// From the next begin() on, owned()'s gradients are the whole batch's (true, the default), or
  /// the sum over this rank's own share, T over its leaves, and only before_launch communicates.
  /// All ranks change together.
  void reduce_over_ranks(bool over_ranks) { alone_ = !over_ranks; }

  void begin(std::uint32_t total, std::span<const Use> order) override;
  void begin_micro(std::uint32_t microbatch, double weight) override;
  Pin acquire(Use) override { return {}; }  // everything is here
  void gradient(ParameterUse use, std::uint32_t microbatch, at::Tensor leaf) noexcept override;
  void end_micro() override;
  void end_pass(std::uint32_t, Phase) override {}
  Work finish() override;
  std::optional<Refusal> refusal() const override;
  std::span<optim::OwnedSlice> owned() override { return slices_; }
  Work publish() override { return {}; }

  void settle() override;
  std::vector<double> chunk_squares() override;
  std::int64_t first_overflow() override;
  void drop() override;
  std::size_t gradient_bytes() const override { return slots_.size() * slots_[0].bytes().size(); }
  /// The tree sum of owned()[slice]; the Buffer keeps the arena alive.
  Buffer sum_of(std::size_t slice) const;
  /// This rank's share of the batch that begin() announced.
  const LeafPlan& plan() const { return *plan_; }
  const BucketLayout& layout() const { return layout_; }

 private:
  struct BucketState {
    int arrived = 0;
    bool launched = false;
  };
  void allocate_sums();
  std::vector<BucketShape> bucket_shapes() const;
  void launch_compressed(std::uint32_t bucket, std::span<const comm::Term> terms,
                         const Buffer& out);
  void announce();
  std::byte* slot(std::uint32_t bucket, int index) const;
  void add(std::uint32_t use, const at::Tensor& gradient);
  void arrived(std::uint32_t bucket);
  void launch(std::uint32_t bucket);
  void launch_ready();
  void learn_order();
  void refuse(const std::string& reason, int exit_code = Refusal::kNotFinite);
  const LeafPlan& plan_for(std::uint32_t total, int size, int rank);
  int most_slots(std::uint32_t total) const;

  comm::Communicator& world_;
  PlainSyncOptions options_;
  std::vector<Accumulated> parameters_;  // flat over all uses
  std::vector<std::uint32_t> first_of_block_;
  std::vector<std::uint32_t> slice_of_;  // per flat use
  std::vector<optim::OwnedSlice> slices_;
  BucketLayout layout_;

  std::vector<comm::Arena> slots_;         // one arena per slot, all buckets in each
  std::vector<std::size_t> bucket_begin_;  // bytes within a slot

  std::unique_ptr<Compressor> compressor_;  // null: the tree sum

  std::map<std::pair<std::uint32_t, int>, LeafPlan> plans_;  // by total and ranks
  const LeafPlan* plan_ = nullptr;
  bool alone_ = false;            // nothing is reduced over the ranks
  std::uint32_t first_leaf_ = 0;  // of the batch, at which the plan's numbers begin

  mutable std::mutex mutex_;  // hooks run on autograd's threads
  std::size_t micro_ = 0;     // micro-batches of this step that have begun
  bool open_ = false;         // between begin_micro and end_micro
  bool forward_only_ = false;
  std::uint32_t microbatch_ = 0;
  double weight_ = 1;
  std::vector<bool> seen_;  // per flat use, in this micro-batch
  std::vector<BucketState> buckets_;
  std::vector<std::uint32_t> order_;  // launch order
  bool order_known_ = false;
  std::vector<std::uint32_t> arrival_;
  std::size_t next_ = 0;  // in order_
  bool announced_ = false;
  std::vector<Work> works_;
  std::optional<Refusal> refusal_;
};

}  // namespace trireme::inline v0::parallel
