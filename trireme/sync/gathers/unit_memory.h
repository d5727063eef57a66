// UnitMemory: the weights of a store's units (ownership.h) in the compute type. They are whole on
// every rank, or (ZeRO-3) only this rank's interval is kept, and show() and hide() attach and
// detach the whole. Every view of a unit, also those that autograd has saved, shares the one
// storage whose data pointer they change. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/sync/levels/ownership.h"
#include "trireme/tensor/devices/pinned_memory.h"

namespace trireme::inline v0::parallel {

class UnitMemory {
 public:
  const Ownership& ownership() const noexcept { return ownership_; }
  int owner() const noexcept { return owner_; }
  bool shards_weights() const noexcept { return shards_weights_; }
  Device device() const noexcept { return device_; }
  /// The device of this rank's intervals of sharded weights: device(), or in the host's memory.
  Device own_device() const noexcept { return own_on_host_ ? Device{} : device_; }
  /// This rank's interval of a unit of sharded weights.
  const at::Tensor& own_bytes(std::uint32_t unit) const { return own_[unit]; }
  /// This rank's interval of a unit, in bytes.
  Buffer own(std::uint32_t unit) const;
  /// The unit's whole memory, in bytes; empty while it is hidden.
  Buffer whole(std::uint32_t unit) const;
  /// Points the leaves of a unit into `whole` (64-byte aligned, the unit's bytes), or nowhere.
  void show(std::uint32_t unit, void* whole);
  void hide(std::uint32_t unit) { show(unit, nullptr); }

 protected:
  /// With one owner, nothing is sharded. `own_on_host`: sharded weights are in pinned host memory.
  UnitMemory(int owners, int owner, bool shards_weights, Device device, bool own_on_host)
      : ownership_(owners),
        owner_(owner),
        shards_weights_(shards_weights && owners > 1),
        device_(device),
        own_on_host_(own_on_host && shards_weights_) {}
  /// Makes the whole memory, zeroed, of the next unit; returns its number.
  std::uint32_t add_unit(std::vector<Unit::Member> members);
  /// Copies this rank's interval of a new unit and hides the whole.
  void keep_own(std::uint32_t unit);
  /// The bytes of a member, and of this rank's piece of it.
  at::Tensor whole_member(std::uint32_t unit, std::size_t member) const;
  at::Tensor own_piece(std::uint32_t unit, std::size_t member, const Piece& piece) const;
  /// For other tensors in the host's pinned memory.
  tensor::PinnedMemory& pinned_memory() noexcept { return pinned_; }
  /// Whether `tensor` is a view of the unit.
  bool lies_in(std::uint32_t unit, const at::Tensor& tensor) const;
  /// This rank's memory of all units; empty unless weights are sharded.
  const std::vector<at::Tensor>& own_memory() const noexcept { return own_; }

 private:
  Ownership ownership_;
  const int owner_;
  const bool shards_weights_;
  const Device device_;
  const bool own_on_host_;
  tensor::PinnedMemory pinned_;
  std::vector<at::Tensor> units_;  // bytes; their storage comes and goes when sharded
  std::vector<at::Tensor> own_;    // bytes of this rank's interval; only if weights are sharded
};

}  // namespace trireme::inline v0::parallel
