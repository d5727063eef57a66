// StateStore: what the updates of an optimizer's slices read and write, but for gradients: state
// tensors, which it allocates, and weights. They are where the slices lie, or, for slices of a device,
// in the host's pinned memory. Then a slice's are fetched while the slice before it is updated, and
// stored while the next one is; the device holds three slices' at a time, and the host waits for
// nothing. Internal to optim/. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "trireme/optim/owned_slice.h"
#include "trireme/tensor/devices/copy_streams.h"
#include "trireme/tensor/devices/pinned_memory.h"

namespace trireme::inline v0::optim {

class StateStore {
 public:
  /// For slices on a device: their state goes to the host. Before the first add().
  void keep_on_host() noexcept { on_host_ = true; }
  /// The next slice, with `has.size()` tensors of its size and master type, zeros; those that it does
  /// not have are undefined.
  void add(const OwnedSlice& slice, const std::vector<bool>& has);

  /// The state tensors as they are kept.
  std::span<const at::Tensor> kept(std::size_t slice) const { return slices_[slice].kept; }
  /// The state tensors for the computing stream. In a pass over slices call it in ascending order.
  std::span<const at::Tensor> fetch(std::size_t slice);
  /// The same for the weights, after fetch(slice).
  const at::Tensor& weight(std::size_t slice) const {
    const Slice& one = slices_[slice];
    return one.weight_moves ? one.fetched_weight : one.weight;
  }
  /// The compute copy where it lies; undefined if there is none.
  const at::Tensor& compute(std::size_t slice) const { return slices_[slice].compute; }
  /// The computing stream was given changes of fetch(slice).
  void store(std::size_t slice);
  /// The computing stream was given changes of weight(slice). Also refreshes the compute copy, if the
  /// weights are on the host.
  void store_weight(std::size_t slice);
  /// Frees what was fetched.
  void end_pass();
  /// Waits until the host may read and write what is kept.
  void wait() const;
  /// Whether anything is fetched and stored.
  bool moves() const noexcept { return streams_.has_value(); }
  /// Bytes in the host's memory that would be on the device.
  std::size_t bytes_on_host() const noexcept { return weights_on_host_ + memory_.bytes(); }

 private:
  struct Slice {
    std::vector<at::Tensor> kept;
    at::Tensor weight, compute;  // where they lie
    bool state_moves = false, weight_moves = false;
    bool fetched = false;  // the rest is of this pass
    std::vector<at::Tensor> fetched_state;
    at::Tensor fetched_weight, sent_compute;
    std::optional<c10::Event> ready, stored;
  };
  at::Tensor fetched(const at::Tensor& kept) const;
  void start_fetch(Slice& slice) const;
  void free_before(std::size_t slice);

  bool on_host_ = false;
  std::size_t weights_on_host_ = 0;  // bytes
  tensor::PinnedMemory memory_;
  std::optional<tensor::CopyStreams> streams_;  // if anything is on the host
  std::vector<Slice> slices_;
  std::size_t first_fetched_ = 0;  // none before it is on the device
};

}  // namespace trireme::inline v0::optim
