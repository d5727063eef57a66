#include "trireme/comm/nccl/lane.h"

#include <bit>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0::comm::nccl {
namespace {

std::future<void> abort_in_a_thread(std::shared_ptr<Gpu> gpu, void* comm) {
  const auto task = std::make_shared<std::packaged_task<void()>>([gpu = std::move(gpu), comm] {
    const Gpu::Current current(*gpu);
    gpu->nccl().comm_abort(comm);
  });
  std::future<void> done = task->get_future();
  try {
    std::thread([task] { (*task)(); }).detach();
  } catch (const std::system_error&) {  // no thread can be started
    (*task)();
  }
  return done;
}

}  // namespace

Lane::Lane(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)), stream_(gpu_->make_stream()) {}

Lane::~Lane() {
  release();
  gpu_->destroy_stream(stream_);
}

// ncclCommDestroy, unlike ncclCommAbort, may wait for peers: it is used after finalization only.
void Lane::release() noexcept {
  if (!comm_) return;
  try {
    const Gpu::Current current(*gpu_);
    state_ == State::Finalized ? gpu_->nccl().comm_destroy(comm_) : gpu_->nccl().comm_abort(comm_);
  } catch (...) {  // no context: the driver has shut down
  }
  comm_ = nullptr;
}

void Lane::require(int result, std::string_view call) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  std::string text = gpu_->nccl().error_text(result);
  const char* const last = comm_ ? gpu_->nccl().last_error(comm_) : nullptr;
  if (last && *last) text += std::string(": ") + last;
  const ErrorContext context{
      .operation = std::string(call),
      .advice = "Run again with NCCL_DEBUG=INFO to see what NCCL did before."};
  if (result == kNcclRemoteError) throw PeerLost("NCCL lost a peer: " + text, context);
  throw ResourceError("NCCL on GPU " + std::to_string(gpu_->index()) + ": " + text, context);
}

NcclId Lane::new_id(const Gpu& gpu) {
  const Gpu::Current current(gpu);
  NcclId id{};
  if (const int result = gpu.nccl().unique_id(&id); result != kNcclSuccess)
    throw ResourceError(std::string("NCCL: ") + gpu.nccl().error_text(result),
                        {.operation = "ncclGetUniqueId",
                         .advice = "Set NCCL_SOCKET_IFNAME to the interface that NCCL may use."});
  return id;
}

void Lane::start(const NcclId& id, int size, int rank) {
  const Gpu::Current current(*gpu_);
  NcclConfig config{sizeof(NcclConfig), kConfigMagic, kOldestNccl, 0};
  state_ = State::Making;
  require(gpu_->nccl().comm_init(&comm_, size, id, rank, &config), "ncclCommInitRankConfig");
}

// True if NCCL is still busy with the last request.
bool Lane::in_progress() {
  if (!comm_) return false;
  int error = kNcclSuccess;
  require(gpu_->nccl().comm_async_error(comm_, &error), "ncclCommGetAsyncError");
  require(error, state_ == State::Making ? "ncclCommInitRankConfig" : "ncclGroupEnd");
  return error == kNcclInProgress;
}

void Lane::look_for_errors() {
  if (state_ == State::New || state_ == State::Broken || !comm_) return;
  const Gpu::Current current(*gpu_);
  in_progress();
}

bool Lane::poll(TimePoint now) {
  if (state_ == State::New || state_ == State::Broken) return false;
  const Gpu::Current current(*gpu_);
  if (state_ == State::Finalizing && !in_progress()) state_ = State::Finalized;
  if (state_ == State::Making && !in_progress()) state_ = State::Ready;
  if (state_ != State::Ready) return false;
  bool moved = false;
  while (!waiting_.empty() && advance()) {
    const std::shared_ptr<GpuCall> call = waiting_.front();
    call->done = gpu_->record(stream_);
    waiting_.pop_front();
    given_.push_back(call);
    call->set_enqueued();
    std::exchange(call->on_enqueued, nullptr)();
    moved = true;
    if (state_ != State::Ready) return true;  // the callback broke the group
  }
  return finish(now) || moved;
}

void Lane::begin(GpuCall& call) {
  for (const GpuEvent& event : call.ready) gpu_->wait_for(stream_, event);
  if (call.scratch_bytes > scratch_bytes_) {
    const std::size_t bytes = std::bit_ceil(call.scratch_bytes);  // all blocks: below twice this
    scratch_.push_back(gpu_->allocate(bytes));
    scratch_bytes_ = bytes;
  }
  void* const scratch = scratch_.empty() ? nullptr : scratch_.back().get();
  call.steps = std::exchange(call.make_steps, nullptr)(static_cast<std::byte*>(scratch));
  call.begun = gpu_->record(stream_);
}

// Issues the front call; true when all of it is in the stream.
bool Lane::advance() {
  GpuCall& call = *waiting_.front();
  if (!call.begun.handle()) begin(call);
  for (;;) {
    if (group_open_ && in_progress()) return false;
    group_open_ = false;
    if (call.next_step == call.steps.size()) return true;
    group_open_ = issue(call.steps[call.next_step++]);
  }
}

// True if NCCL may still be busy with the step.
bool Lane::issue(const GpuStep& step) {
  switch (step.kind) {
    case GpuStep::Fold:
      gpu_->fold(step.op, step.dtype, *step.fold, stream_);
      return false;
    case GpuStep::Copy:
      gpu_->copy(step.to, step.from, step.bytes, stream_);
      return false;
    case GpuStep::Clear:
      gpu_->clear(step.to, step.bytes, stream_);
      return false;
    case GpuStep::Nccl:
      break;
  }
  require(gpu_->nccl().group_start(), "ncclGroupStart");
  try {
    for (const NcclCall& call : step.calls) issue(call);
  } catch (...) {
    gpu_->nccl().group_end();
    throw;
  }
  require(gpu_->nccl().group_end(), "ncclGroupEnd");
  return true;
}

void Lane::issue(const NcclCall& c) const {
  const NcclApi& nccl = gpu_->nccl();
  switch (c.kind) {
    case NcclCall::AllReduce:
      return require(nccl.all_reduce(c.in, c.out, c.count, c.type, c.op, comm_, stream_),
                     "ncclAllReduce");
    case NcclCall::Reduce:
      return require(nccl.reduce(c.in, c.out, c.count, c.type, c.op, c.peer, comm_, stream_),
                     "ncclReduce");
    case NcclCall::ReduceScatter:
      return require(nccl.reduce_scatter(c.in, c.out, c.count, c.type, c.op, comm_, stream_),
                     "ncclReduceScatter");
    case NcclCall::AllGather:
      return require(nccl.all_gather(c.in, c.out, c.count, c.type, comm_, stream_),
                     "ncclAllGather");
    case NcclCall::Broadcast:
      return require(nccl.broadcast(c.in, c.out, c.count, c.type, c.peer, comm_, stream_),
                     "ncclBroadcast");
    case NcclCall::Send:
      return require(nccl.send(c.in, c.count, c.type, c.peer, comm_, stream_), "ncclSend");
    case NcclCall::Recv:
      return require(nccl.recv(c.out, c.count, c.type, c.peer, comm_, stream_), "ncclRecv");
  }
}

bool Lane::finish(TimePoint now) {
  bool moved = false;
  while (!given_.empty() && state_ == State::Ready) {
    GpuCall& first = *given_.front();
    if (first.begun_at == TimePoint::max() && gpu_->reached(first.begun)) first.begun_at = now;
    if (!gpu_->reached(first.done)) break;
    const std::shared_ptr<GpuCall> call = std::move(given_.front());
    given_.pop_front();
    call->end(nullptr);
    moved = true;
  }
  return moved;
}

void Lane::finalize() {
  if (state_ != State::Ready || !comm_) {
    if (state_ == State::Ready) state_ = State::Finalized;
    return;
  }
  const Gpu::Current current(*gpu_);
  state_ = State::Finalizing;
  require(gpu_->nccl().comm_finalize(comm_), "ncclCommFinalize");
}

void Lane::abort(const std::exception_ptr& error) noexcept {
  if (state_ == State::Broken) return;
  state_ = State::Broken;
  if (comm_) aborting_ = abort_in_a_thread(gpu_, std::exchange(comm_, nullptr));
  std::deque<std::shared_ptr<GpuCall>> untouched;
  for (auto& call : std::exchange(waiting_, {})) {
    (call->begun.handle() ? given_ : untouched).push_back(std::move(call));
  }
  for (const auto& call : untouched) call->end(error);
}

bool Lane::drained() noexcept {
  if (aborting_.valid()) {
    const std::chrono::milliseconds wait(waits_left_ > 0 ? 1 : 0);
    if (waits_left_ > 0) --waits_left_;
    if (aborting_.wait_for(wait) != std::future_status::ready) return false;
  }
  if (given_.empty()) return true;
  try {
    if (!last_.handle()) last_ = gpu_->record(stream_);
    return gpu_->reached(last_);
  } catch (...) {  // the context is broken, so the GPU accesses nothing any more
    return true;
  }
}

void Lane::end_all(const std::exception_ptr& error) noexcept {
  for (const auto& call : std::exchange(given_, {})) call->end(error);
}

}  // namespace trireme::inline v0::comm::nccl
