// CopyStreams: copies between a device and the host's pinned memory, in two streams beside the
// computing stream (the current one). The host never waits. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace trireme::inline v0::tensor {

class CopyStreams {
 public:
  explicit CopyStreams(at::Device device);

  at::Device device() const noexcept { return device_; }
  /// Copies to pinned memory, after the work that the computing stream has.
  void store(const at::Tensor& from, const at::Tensor& to) const { copy(from, to, store_); }
  /// Copies from pinned memory, after the work that the computing stream has.
  void fetch(const at::Tensor& from, const at::Tensor& to) const { copy(from, to, fetch_); }
  /// The stream of fetches, for work that follows them.
  c10::Stream fetching() const noexcept { return fetch_; }
  /// The end of all stores and of all fetches so far.
  c10::Event stored() const { return mark(store_); }
  c10::Event fetched() const { return mark(fetch_); }
  /// Work given to the computing stream from now on runs after the event.
  void wait(const c10::Event& event) const { event.block(computing()); }
  /// LibTorch reuses this memory of the device only after all stores, or all fetches, so far.
  void hold_until_stored(const at::DataPtr& memory) const {
    guards_.recordDataPtrOnStream(memory, store_);
  }
  void hold_until_fetched(const at::DataPtr& memory) const {
    guards_.recordDataPtrOnStream(memory, fetch_);
  }

 private:
  c10::Stream computing() const { return guards_.getStream(device_); }
  void copy(const at::Tensor& from, const at::Tensor& to, const c10::Stream& stream) const;
  static c10::Event mark(const c10::Stream& stream);

  at::Device device_;
  c10::impl::VirtualGuardImpl guards_;
  c10::Stream store_, fetch_;
};

}  // namespace trireme::inline v0::tensor
