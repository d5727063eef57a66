// Lane: one NCCL communicator and one stream, through which calls go one after another.
//
// The communicator is non-blocking: its creation, and every group of calls, may be in progress for
// a while. poll() continues when NCCL is ready, and ends the calls that the GPU has finished, in
// order. It throws the failures of CUDA and NCCL. Progress context only.
//
// ncclCommAbort waits until the GPU has ended the communicator's kernels. These may be behind those
// of another lane, which is aborted later, or may never end. So abort() leaves it to a thread.
#pragma once

#include <deque>
#include <future>
#include <memory>
#include <vector>

#include "trireme/comm/nccl/gpu.h"
#include "trireme/comm/nccl/gpu_call.h"

namespace trireme::inline v0::comm::nccl {

class Lane {
 public:
  explicit Lane(std::shared_ptr<Gpu> gpu);
  /// Aborts the communicator if it is neither finalized nor aborted.
  ~Lane();
  Lane(const Lane&) = delete;

  bool started() const noexcept { return state_ != State::New; }
  /// A new id for start(), to be sent to the other ranks. ResourceError.
  static NcclId new_id(const Gpu& gpu);
  /// Begins to create the communicator; all its ranks must do so with the same id.
  void start(const NcclId& id, int size, int rank);
  /// For a group of one, which needs no communicator.
  void start_alone() noexcept { state_ = State::Ready; }
  void push(std::shared_ptr<GpuCall> call) { waiting_.push_back(std::move(call)); }

  /// True if anything moved.
  bool poll(TimePoint now);
  /// Throws if NCCL reports an error of calls that are in the stream.
  void look_for_errors();
  bool idle() const noexcept { return waiting_.empty() && given_.empty(); }
  /// The first call in the stream that has not ended, or null.
  GpuCall* running() const noexcept { return given_.empty() ? nullptr : given_.front().get(); }
  /// As running(), else the call that is being issued, or null.
  GpuCall* at() const noexcept {
    return given_.empty() && !waiting_.empty() ? waiting_.front().get() : running();
  }

  /// Begins ncclCommFinalize; poll() until finalized().
  void finalize();
  bool finalized() const noexcept { return state_ == State::Finalized || state_ == State::New; }

  /// Begins to abort the communicator. Calls that are not in the stream yet fail now; others at
  /// end_all().
  void abort(const std::exception_ptr& error) noexcept;
  /// After abort(): true when the GPU no longer accesses any buffer; then call end_all(). The first
  /// 200 calls wait up to a millisecond for the thread; a virtual clock would run ahead of it.
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
  bool group_open_ = false;                       // NCCL may still be issuing the last group
  std::deque<std::shared_ptr<GpuCall>> waiting_;  // front: being issued
  std::deque<std::shared_ptr<GpuCall>> given_;    // in the stream
  // Memory that was too small is kept as well: cuMemFree waits for all that the GPU does, which may
  // wait for peers that wait for this rank.
  std::vector<std::shared_ptr<void>> scratch_;
  std::size_t scratch_bytes_ = 0;  // of the last one
  std::future<void> aborting_;     // the end of ncclCommAbort
  int waits_left_ = 200;           // of drained()
  GpuEvent last_;                  // recorded after the abort
};

}  // namespace trireme::inline v0::comm::nccl
