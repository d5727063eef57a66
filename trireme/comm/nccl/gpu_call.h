// GpuCall: one collective or message on its way through a GPU's stream, and what a Work tells
// streams of it. Made by the caller's thread, which notes where the buffers' streams stand; then
// in the hands of the progress context, but for enqueued() and wait_on().
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
#include "trireme/comm/nccl/gpu.h"
#include "trireme/comm/nccl/gpu_plan.h"

namespace trireme {
inline namespace v0 {
namespace comm {
namespace nccl {

class GpuCall final : public DeviceSide {
 public:
  GpuCall(std::shared_ptr<Gpu> gpu, std::vector<GpuEvent> ready,
          std::shared_ptr<const FoldPlan> plan)
      : ready(std::move(ready)), plan(std::move(plan)), gpu_(std::move(gpu)) {}

  bool enqueued() const noexcept override { return enqueued_.load(std::memory_order_acquire); }
  void wait_on(Stream stream) override { gpu_->wait_for(stream.handle, done); }

  /// All of it is in the stream, `done` behind it.
  void set_enqueued() noexcept { enqueued_.store(true, std::memory_order_release); }

  // In the progress context:
  std::vector<GpuEvent> ready;                 // what is in its buffers before these is meant
  const std::shared_ptr<const FoldPlan> plan;  // null for a message
  std::string title;                           // "all_reduce bucket 2"
  std::string operation, label;                // its parts
  std::size_t scratch_bytes = 0;
  std::function<std::vector<GpuStep>(std::byte* scratch)> make_steps;
  std::function<void()> on_enqueued;
  /// Null: the GPU has ended it. It must not throw; the call's buffers are let go of after it.
  std::function<void(const std::exception_ptr&)> on_end;

  void end(const std::exception_ptr& error) {
    make_steps = nullptr, on_enqueued = nullptr;
    std::exchange(on_end, nullptr)(error);
  }

  std::vector<GpuStep> steps;
  std::size_t next_step = 0;
  GpuEvent begun, done;
  TimePoint begun_at = TimePoint::max();  // when it was seen that the GPU had come to it
  std::shared_ptr<void> scratch;

 private:
  const std::shared_ptr<Gpu> gpu_;
  std::atomic<bool> enqueued_{false};
};

}  // namespace nccl
}  // namespace comm
}  // namespace v0
}  // namespace trireme
