// GpuCall: one collective or message in a GPU's stream, and the part of its Work with which other
// streams wait for it. The caller's thread makes it and records events on the buffers' streams.
// After that it is used in the progress context only, except for enqueued() and wait_on().
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/work.h"
#include "trireme/base/work_source.h"
#include "trireme/comm/nccl/gpu.h"
#include "trireme/comm/nccl/gpu_plan.h"

namespace trireme::inline v0::comm::nccl {

class GpuCall final : public DeviceSide {
 public:
  GpuCall(std::shared_ptr<Gpu> gpu, std::vector<GpuEvent> ready)
      : ready(std::move(ready)), gpu_(std::move(gpu)) {}

  bool enqueued() const noexcept override { return enqueued_.load(std::memory_order_acquire); }
  void wait_on(Stream stream) override { gpu_->wait_for(stream.handle, done); }

  /// Called when all steps, and the event `done`, are in the stream.
  void set_enqueued() noexcept { enqueued_.store(true, std::memory_order_release); }

  // In the progress context:
  std::vector<GpuEvent> ready;   // the call's stream waits for these
  std::string operation, label;  // "all_reduce", "bucket 2"
  int peer = -1;                 // of a message; -1: all ranks take part
  std::size_t scratch_bytes = 0;
  std::function<std::vector<GpuStep>(std::byte* scratch)> make_steps;
  std::function<void()> on_enqueued;
  /// Called with null when the GPU has ended the call, else with the error. Must not throw. The GPU
  /// does not access the call's buffers any more.
  std::function<void(const std::exception_ptr&)> on_end;

  void end(const std::exception_ptr& error) {
    make_steps = nullptr, on_enqueued = nullptr;
    std::exchange(on_end, nullptr)(error);
  }

  std::vector<GpuStep> steps;
  std::size_t next_step = 0;
  GpuEvent begun, done;
  TimePoint begun_at = TimePoint::max();    // when poll() saw that the GPU had begun it
  TimePoint lost_since = TimePoint::max();  // when the group saw that a rank of it was lost

 private:
  const std::shared_ptr<Gpu> gpu_;
  std::atomic<bool> enqueued_{false};
};

}  // namespace trireme::inline v0::comm::nccl
