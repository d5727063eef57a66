#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <optional>

#include "trireme/comm/staging/device_copies.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::tensor {
namespace {

at::TensorOptions bytes_on(at::Device device) { return at::TensorOptions(device).dtype(at::kByte); }

struct PinnedBlock final : comm::HostBlock {
  explicit PinnedBlock(std::size_t count)
      : tensor(at::empty({static_cast<std::int64_t>(count)},
                         bytes_on(at::kCPU).pinned_memory(true))) {}
  std::span<std::byte> bytes() noexcept override {
    return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
  }
  at::Tensor tensor;
};

struct EventMark final : comm::DeviceMark {
  explicit EventMark(const c10::Stream& recorded) : stream(recorded) {
    event.emplace(stream.device_type());
    event->record(stream);
  }
  // The destructor of a CUDA event makes the event's device current and then the thread's device
  // again, which allocates memory on that device (often GPU 0). With the guard it does not.
  ~EventMark() override {
    const c10::DeviceGuard guard(stream.device());
    event.reset();
  }
  bool reached() override { return event->query(); }
  void wait_on(Stream waiting) override {
    const c10::impl::VirtualGuardImpl guards(stream.device_type());
    const c10::Stream current = guards.getStream(stream.device());
    if (waiting.handle != nullptr && waiting.handle != guards.getStreamNativeHandle(current))
      event->synchronize();
    else if (current != stream)
      event->block(current);
  }
  const c10::Stream stream;
  std::optional<c10::Event> event;
};

at::Tensor device_bytes(const Buffer& buffer) {
  Buffer bytes = buffer;
  bytes.count = buffer.bytes();
  bytes.dtype = DType::U8;
  return view_of(bytes);
}

class TorchCopies final : public comm::DeviceCopies {
 public:
  Stream current_stream(Device device) override { return tensor::current_stream(device); }

  std::shared_ptr<comm::HostBlock> host_block(std::size_t bytes) override {
    return std::make_shared<PinnedBlock>(bytes);
  }

  std::shared_ptr<std::byte> device_memory(std::size_t bytes, Device device) override {
    const auto tensor = std::make_shared<at::Tensor>(
        at::zeros({static_cast<std::int64_t>(bytes)}, bytes_on(at_device(device))));
    return {tensor, static_cast<std::byte*>(tensor->data_ptr())};
  }

  std::shared_ptr<comm::DeviceMark> fetch(Device device,
                                          std::span<const comm::StagedBuffer> buffers) override {
    const Streams streams = streams_of(device);
    const c10::impl::VirtualGuardImpl guards(streams.fetch.device_type());
    c10::Event given(streams.fetch.device_type());
    given.record(guards.getStream(streams.fetch.device()));
    given.block(streams.fetch);
    given.block(streams.store);  // results may overwrite only what earlier work has read
    const c10::StreamGuard guard(streams.fetch);
    for (const comm::StagedBuffer& one : buffers)
      host_bytes(one).copy_(device_bytes(one.buffer), /*non_blocking=*/true);
    return std::make_shared<EventMark>(streams.fetch);
  }

  std::shared_ptr<comm::DeviceMark> copy(const Buffer& to, const Buffer& from) override {
    const at::Device device = at_device(to.device);
    if (to.data != from.data && to.bytes() > 0)
      device_bytes(to).copy_(device_bytes(from), /*non_blocking=*/true);
    return std::make_shared<EventMark>(
        c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }

  std::shared_ptr<comm::DeviceMark> store(Device device,
                                          std::span<const comm::StagedBuffer> buffers) override {
    const Streams streams = streams_of(device);
    const c10::StreamGuard guard(streams.store);
    for (const comm::StagedBuffer& one : buffers)
      device_bytes(one.buffer).copy_(host_bytes(one), /*non_blocking=*/true);
    return std::make_shared<EventMark>(streams.store);
  }

 private:
  struct Streams {
    c10::Stream fetch, store;
  };

  static at::Tensor& host_bytes(const comm::StagedBuffer& one) {
    return static_cast<PinnedBlock&>(*one.host).tensor;
  }

  Streams streams_of(Device device) {
    const std::lock_guard lock(mutex_);
    std::optional<Streams>& streams = streams_[device.index];
    if (!streams) {
      const at::Device where = at_device(device);
      const c10::impl::VirtualGuardImpl guards(where.type());
      streams = {guards.getStreamFromGlobalPool(where), guards.getStreamFromGlobalPool(where)};
    }
    return *streams;
  }

  std::mutex mutex_;
  std::map<int, std::optional<Streams>> streams_;  // by device
};

}  // namespace

std::shared_ptr<comm::DeviceCopies> make_device_copies() { return std::make_shared<TorchCopies>(); }

}  // namespace trireme::inline v0::tensor
