// Lane: one NCCL communicator and one stream, through which calls go one after another.
//
// The communicator does not block: its making, and every group of calls, may be in progress for a
// while; poll() moves on when it is not. What the GPU has been given ends in order, and poll()
// tells each call. Failures of CUDA and NCCL are thrown by poll(). Progress context only.
#pragma once

#include <deque>
#include <memory>

#include "trireme/comm/nccl/gpu.h"
#include "trireme/comm/nccl/gpu_call.h"

namespace trireme {
inline namespace v0 {
namespace comm {
namespace nccl {

class Lane {
 public:
  explicit Lane(std::shared_ptr<Gpu> gpu);
  /// Aborts what is open; see drained().
  ~Lane();
  Lane(const Lane&) = delete;

  bool started() const noexcept { return state_ != State::New; }
  /// Begins to make the communicator: every rank of it must do so with the same id.
  void start(const NcclId& id, int size, int rank);
  /// A group of one needs none.
  void start_alone() noexcept { state_ = State::Ready; }
  void push(std::shared_ptr<GpuCall> call) { waiting_.push_back(std::move(call)); }

  /// True if anything moved.
  bool poll(TimePoint now);
  /// NCCL's word on calls that the GPU has been given; throws where it is a failure.
  void look_for_errors();
  bool idle() const noexcept { return waiting_.empty() && given_.empty(); }
  /// The call that the GPU is at, or null.
  const GpuCall* running() const noexcept {
    return given_.empty() ? nullptr : given_.front().get();
  }
  /// That one, else the one that is being given, or null.
  const GpuCall* at() const noexcept {
    return given_.empty() && !waiting_.empty() ? waiting_.front().get() : running();
  }

  /// Tells the peers that nothing more comes, and takes leave; poll() until finalized().
  void finalize();
  bool finalized() const noexcept { return state_ == State::Finalized || state_ == State::New; }

  /// Breaks the communicator. Calls that the GPU has not been given fail now with `error`, the
  /// others wait for drained().
  void abort(const std::exception_ptr& error) noexcept;
  /// After abort(): true once the GPU has let go of every buffer; then end_all().
  bool drained() noexcept;
  void end_all(const std::exception_ptr& error) noexcept;

 private:
  enum class State { New, Making, Ready, Finalizing, Finalized, Broken };

  bool in_progress();
  void require(int result, std::string_view call) const;
  void begin(GpuCall& call);
  bool advance();
  bool issue(const GpuStep& step);
  void issue(const NcclCall& call) const;
  bool finish(TimePoint now);
  void release() noexcept;

  const std::shared_ptr<Gpu> gpu_;
  void* stream_ = nullptr;
  void* comm_ = nullptr;  // null in a group of one
  State state_ = State::New;
  bool group_open_ = false;                       // NCCL still works at the last group
  std::deque<std::shared_ptr<GpuCall>> waiting_;  // front: being given
  std::deque<std::shared_ptr<GpuCall>> given_;
  std::shared_ptr<void> scratch_;
  std::size_t scratch_bytes_ = 0;
  GpuEvent last_;  // after abort()
  bool lost_ = false;
};

}  // namespace nccl
}  // namespace comm
}  // namespace v0
}  // namespace trireme
