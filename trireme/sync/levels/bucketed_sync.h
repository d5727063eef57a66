// BucketedSync: what plain data parallel and the levels of ZeRO share. The gradients of a
// micro-batch become leaves of tree sums that lie in buckets. When all leaves of a bucket have
// arrived, the derived class may send it.
//
// gradient() may be called by autograd's threads while the caller's thread is in another method.
// `mutex_` guards what both use; nobody waits for another rank while holding it, so gradient()
// waits for nothing. A derived class waits, and allocates together with other ranks, only on the
// caller's thread and without the mutex.
#pragma once

#include <mutex>
#include <vector>

#include "trireme/kernel/assignment.h"
#include "trireme/sync/buckets/bucket_layout.h"
#include "trireme/sync/buckets/leaf_sums.h"
#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

class BucketedSync : public ParameterSync {
 public:
  void begin_micro(std::uint32_t microbatch, double weight) final;
  void gradient(ParameterUse use, std::uint32_t microbatch, at::Tensor leaf) noexcept final;
  std::optional<Refusal> refusal() const override;
  void settle() final;
  std::span<optim::OwnedSlice> owned() final { return slices_; }
  std::size_t gradient_bytes() const final { return sums_.bytes(); }
  /// From the next begin() on, groups have shares by these weights (kernel/assignment.h). All ranks
  /// change together.
  void set_shares(std::vector<std::uint32_t> weights) { assignment_.weights = std::move(weights); }

 protected:
  struct Setup {
    std::vector<std::vector<Accumulated>> uses;            // by block
    std::vector<std::vector<std::uint32_t>> parameter_of;  // of each use
    std::vector<optim::OwnedSlice> slices;                 // what this rank updates
    std::vector<std::vector<Piece>> pieces = {};           // of each owner; empty: one has `slices`
    int owner = 0;                                         // this rank
    bool sums_own_part = false;  // sums are kept of this owner's part of buckets, not of all
    std::int64_t bucket_bytes = 4 << 20;
    LeafSums::Allocate allocate;
    std::function<Work()> before_launch;
    kernel::Assignment assignment;
    int rank = 0;  // in the assignment
  };
  /// Allocates the first slot of the sums and sets the addresses of the slices' gradients.
  explicit BucketedSync(Setup setup);

  // Call these and the virtual ones with the mutex held.
  void begin_step(std::uint32_t total);
  void begin_round(bool present);
  /// Calls before_launch, once per step.
  void announce() {
    if (!std::exchange(announced_, true) && before_launch_) works_.push_back(before_launch_());
  }
  /// No more gradients will come for blocks from `block` on: uses without one get a zero leaf.
  void close_from(std::uint32_t block);
  /// Launches the buckets whose leaves have all arrived, as far as launch_order_ allows.
  void launch_ready();
  void launch_rest() {
    while (next_ < launch_order_.size()) launch(launch_order_[next_++]);
  }
  bool last_round() const { return round_ + 1 == rounds_; }
  /// Adds a part of this micro-batch's leaf; a null `gradient` is zero.
  virtual tensor::Finite add_leaf(const BucketLayout::RangeIndex& place, const void* gradient,
                                  DType type);
  /// Whether buckets are launched in this round.
  virtual bool launches() const = 0;
  /// Starts to send this round's bucket.
  virtual void launch(std::uint32_t bucket) = 0;

  kernel::Assignment assignment_;
  const int rank_, owner_;
  std::vector<Accumulated> uses_;              // flat over blocks
  std::vector<std::uint32_t> parameter_of_;    // of each use
  std::vector<std::uint32_t> first_of_block_;  // in uses_, and the end
  BucketLayout layout_;
  LeafSums sums_;
  std::vector<optim::OwnedSlice> slices_;

  mutable std::mutex mutex_;
  std::uint32_t total_ = 0;
  std::vector<std::uint32_t> leaves_;     // this rank's micro-batches
  LeafPlan plan_;                         // what is added into sums_
  std::uint32_t rounds_ = 0, round_ = 0;  // micro-batches of this rank, or of one that has more
  bool open_ = false;                     // between begin_micro and end_micro
  bool present_ = false;                  // this rank has a micro-batch in the round
  double weight_ = 1;
  std::vector<std::uint32_t> launch_order_;  // of buckets, the same on all ranks
  std::vector<std::uint32_t> arrival_;       // buckets of this round whose leaves are all here
  std::vector<Work> works_;

 private:
  void add(std::uint32_t use, const at::Tensor& gradient);
  void arrived(std::uint32_t use);
  bool filled(std::uint32_t bucket) const {
    return arrived_[bucket] == layout_.buckets[bucket].uses.size();
  }
  void refuse(const std::string& reason, int exit_code = Refusal::kNotFinite) const;
  void refuse_not_finite(std::uint32_t use, std::uint32_t microbatch) const;
  void read_checks() const;
  std::byte* own_sum(const BucketLayout::RangeIndex& place) const {
    return sums_.at(0, place.bucket, layout_.part(place).offset);
  }

  const std::function<Work()> before_launch_;
  std::vector<bool> seen_;            // per use, in this round
  std::vector<std::size_t> arrived_;  // uses, per bucket
  std::uint32_t closed_ = 0;          // uses from here on are closed
  std::size_t next_ = 0;              // in launch_order_
  bool announced_ = false;
  /// Leaves of which the device has not said whether they are finite.
  struct Unread {
    std::uint32_t use = 0, microbatch = 0;
    at::Tensor broken;
  };
  mutable std::vector<Unread> unread_;
  mutable std::optional<Refusal> refusal_;
};

}  // namespace trireme::inline v0::parallel
