#include "trireme/comm/nccl/gpu_group.h"

#include <algorithm>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/device/place.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/rounds/phase.h"

namespace trireme::inline v0::comm::nccl {
namespace {

// A peer that has left may have ended its part; this is the time for the last data to arrive.
constexpr Duration kGrace = std::chrono::seconds(1);
constexpr Duration kLeave = std::chrono::seconds(1);

// The stream of buffers that name none.
Stream current_stream(const Engine& engine, Device device) {
  return engine.copies ? engine.copies->current_stream(device) : Stream{};
}

// `current`: the stream of buffers that name none.
std::vector<GpuEvent> events_on_streams(Gpu& gpu, const Operation& operation, Stream current) {
  std::set<void*> streams;
  const auto visit = [&](const Buffer& buffer) {
    const Stream own = buffer.stream.handle != nullptr ? buffer.stream : current;
    if (buffer.count > 0) streams.insert(own.handle);
  };
  visit(operation.in);
  visit(operation.out);
  for (const Term& term : operation.terms) visit(term.value);
  std::vector<GpuEvent> events;
  for (void* const stream : streams) events.push_back(gpu.record(stream));
  return events;
}

}  // namespace

MakeDeviceBackend backend_on(std::shared_ptr<Gpu> gpu) {
  if (!gpu) return nullptr;
  return [gpu = std::move(gpu)](Engine& engine) { return std::make_shared<GpuGroup>(engine, gpu); };
}

GpuGroup::GpuGroup(Engine& engine, std::shared_ptr<Gpu> gpu)
    : engine_(&engine),
      waiter_(engine.transport->waiter()),
      gpu_(std::move(gpu)),
      rank_(engine.facts.rank),
      size_(engine.facts.size),
      timeout_(engine.facts.options.timeout),
      watch_(waiter_),
      plans_(size_) {}

std::shared_ptr<GpuCall> HeldCalls::add(const std::shared_ptr<Call>& call) {
  const Operation& op = call->operation;
  const auto mine = std::static_pointer_cast<GpuCall>(op.device);
  mine->operation = std::string(name_of(op.called()));
  mine->label = op.label;
  calls_.push_back(call);
  count_.fetch_add(1, std::memory_order_acq_rel);
  return mine;
}

void HeldCalls::remove(const std::shared_ptr<Call>& call) {
  std::erase(calls_, call);
  count_.fetch_sub(1, std::memory_order_acq_rel);
}

bool HeldCalls::has(const Call& call) const noexcept {
  return std::any_of(calls_.begin(), calls_.end(),
                     [&](const auto& one) { return one.get() == &call; });
}

void GpuGroup::prepare(Operation& operation, std::string_view wanted) {
  const Device device = device_of(operation);
  const int name = engine_->facts.world_rank();
  const auto require = [&](bool condition, const std::string& what, const std::string& advice) {
    if (!condition)
      throw ConfigError(what, {.rank = name, .operation = title_of(operation), .advice = advice});
  };
  require(device == gpu_->device(),
          "a buffer lies on " + text_of(device) + ", this rank's is " + text_of(gpu_->device()),
          "Allocate it on job.device().");
  operation.on_device = true;
  operation.may_be_direct = false;
  operation.algorithm =
      gpu_algorithm(operation, wanted == kNative, engine_->facts.options.reproducible);
  const bool folds = needs_fold(operation, place_of(operation), name);
  require(gpu_->can_fold() || !folds, "this build has no CUDA kernels for the reproducible sum",
          "Build where nvcc is found, or use comm.algorithm nccl-native.");
  if (folds) gpu_->load_fold(combine_of(operation.op), operation.dtype);
  operation.device = std::make_shared<GpuCall>(
      gpu_, events_on_streams(*gpu_, operation, current_stream(*engine_, device)));
}

GpuPlace GpuGroup::place_of(const Operation& operation) {
  std::lock_guard lock(plans_mutex_);
  return {rank_, size_, plans_.of(operation.leaves())};
}

Arena GpuGroup::allocate(std::size_t bytes, Device device) {
  if (device != gpu_->device()) refuse_device(device, engine_->facts.world_rank());
  const std::shared_ptr<void> memory = gpu_->allocate(bytes);
  gpu_->clear(memory.get(), bytes, current_stream(*engine_, device).handle);
  return {{static_cast<std::byte*>(memory.get()), bytes}, memory, device};
}

namespace {

class GpuRun final : public Run {
 public:
  GpuRun(std::shared_ptr<GpuGroup> group, std::shared_ptr<Call> call)
      : group_(std::move(group)), call_(std::move(call)) {}
  void run() override {
    call_->run = nullptr;  // breaks the cycle; the caller holds this
    group_->run(call_);
  }

 private:
  const std::shared_ptr<GpuGroup> group_;
  const std::shared_ptr<Call> call_;
};

}  // namespace

std::shared_ptr<Run> GpuGroup::begin(const std::shared_ptr<Call>& call) {
  return std::make_shared<GpuRun>(shared_from_this(), call);
}

void GpuGroup::run(const std::shared_ptr<Call>& call) {
  const std::shared_ptr<GpuCall> mine = held_.add(call);
  const GpuPlace place = place_of(call->operation);
  mine->scratch_bytes = scratch_bytes(call->operation, place);
  mine->make_steps = [call, place](std::byte* scratch) {
    return steps_of(call->operation, place, scratch);
  };
  mine->on_enqueued = [this, call] {
    if (engine_) engine_->given_to_device();
  };
  mine->on_end = [self = shared_from_this(), call](const std::exception_ptr& error) {
    self->held_.remove(call);
    if (self->engine_ && self->engine_->trace && !error)
      self->engine_->trace->finished(call->operation, call->times);
    call->end(error);
  };
  try {
    start_lane();
    lane_->push(mine);
  } catch (...) {
    const auto error = about(mine.get(), std::current_exception());
    mine->end(error);
    return fail(error);
  }
  watch_.begin(shared_from_this());
  poll();
}

// Rank 0 sends the NCCL id to each rank directly, so that ranks wait only for rank 0.
void GpuGroup::start_lane() {
  if (!lane_) lane_ = lanes_.emplace_back(std::make_shared<Lane>(gpu_));
  if (lane_->started() || std::exchange(spreading_, true)) return;
  if (size_ == 1) return lane_->start_alone();
  const auto begin = [self = shared_from_this()] {
    if (!self->engine_ || self->error_) return;
    try {
      self->lane_->start(self->id_, self->size_, self->rank_);
    } catch (...) {
      self->fail(self->about(nullptr, std::current_exception()));
    }
  };
  auto phase = Phase::open(*engine_, begin);
  if (rank_ == 0) {
    id_ = Lane::new_id(*gpu_);
    for (int peer = 1; peer < size_; ++peer) {
      phase->send(peer, tag_of(Purpose::Device), std::as_bytes(std::span(&id_, 1)));
    }
  } else {
    phase->recv(0, tag_of(Purpose::Device), std::as_writable_bytes(std::span(&id_, 1)));
  }
  phase->close();
}

bool GpuGroup::poll() {
  if (lanes_.empty() || !pending()) return false;
  const TimePoint now = waiter_->now();
  if (draining_) return drain(now), !draining_;
  if (leaving_) return take_leave(now), !leaving_;
  const std::shared_ptr<GpuGroup> keep = shared_from_this();
  bool moved = false;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {  // callbacks may add a lane, or remove all
    const std::shared_ptr<Lane> lane = lanes_[i];
    moved |= look_after(*lane, now);
  }
  if (moved) waiter_->wake();  // Work::wait_on() asks whether a call is enqueued
  return moved;
}

bool GpuGroup::look_after(Lane& lane, TimePoint now) {
  try {
    const bool moved = lane.poll(now);
    if (!engine_ || error_ || lane.idle()) return moved;
    lane.look_for_errors();
    GpuCall& next = *lane.at();
    if (const int lost = lost_peer(&next); lost >= 0) {
      if (next.lost_since == TimePoint::max()) next.lost_since = now;
      if (now - next.lost_since >= kGrace) {
        fail(about(&next, engine_->facts.peer_lost(lost, " is lost")));
        return moved;
      }
    }
    // If a thread waits on the host, the deadline of that wait decides instead.
    const GpuCall* const call = lane.running();
    if (call && call->begun_at != TimePoint::max() && engine_->waits.blocked() == 0 &&
        now - call->begun_at >= timeout_)
      fail(about(call, timeout(now - call->begun_at, call->operation, call->label)));
    return moved;
  } catch (...) {
    fail(about(lane.at(), std::current_exception()));
    return true;
  }
}

// The call's headers agreed, so the cause is a GPU or a link between two of them.
std::exception_ptr GpuGroup::timeout(Duration waited, const std::string& operation,
                                     const std::string& label) const {
  return std::make_exception_ptr(TimeoutError(
      "waited " + seconds_text(waited) + " for GPU " + std::to_string(gpu_->index()) +
          " to end what all ranks have begun over NCCL" + engine_->facts.text(),
      {.rank = engine_->facts.world_rank(),
       .operation = operation,
       .label = label,
       .advice = "Run again with NCCL_DEBUG=INFO to see which GPUs wait for each other; raise "
                 "`timeout` if the GPU was only slow."}));
}

// A rank of the call that is lost; -1: none is known. Others may have left in good order.
int GpuGroup::lost_peer(const GpuCall* call) const {
  const int only = call ? call->peer : -1;
  for (int peer = 0; engine_ && peer < size_; ++peer) {
    const bool takes_part = only < 0 ? peer != rank_ : peer == only;
    if (takes_part && engine_->transport->lost(peer)) return peer;
  }
  return -1;
}

// Adds the rank, the call and, if known, the lost peer to the error.
std::exception_ptr GpuGroup::about(const GpuCall* call, const std::exception_ptr& error) const {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    ErrorContext context = known.context();
    std::string message = known.message();
    context.rank = engine_ ? engine_->facts.world_rank() : rank_;
    if (call && context.operation != call->operation) {
      if (!context.operation.empty()) message += " in " + context.operation;
      context.operation = call->operation;
      context.label = call->label;
    }
    if (const int lost = lost_peer(call); lost >= 0 && context.peer < 0)
      context.peer = engine_->facts.world_rank(lost);
    return make_error(known.code(), std::move(message), std::move(context));
  } catch (...) {
    return error;
  }
}

void GpuGroup::fail(std::exception_ptr error) {
  if (engine_) return engine_->break_with(error);
  abort(error);
}

void GpuGroup::abort(const std::exception_ptr& error) noexcept {
  if (error_ || leaving_ || gone_) return;
  error_ = error;
  messages_.abort(error);
  lane_ = nullptr;
  if (lanes_.empty()) return;
  const std::shared_ptr<GpuGroup> keep = shared_from_this();
  draining_ = true;
  until_ = waiter_->now() + timeout_;
  for (std::size_t i = 0; i < lanes_.size(); ++i) std::shared_ptr(lanes_[i])->abort(error);
  watch_.begin(shared_from_this());
  drain(waiter_->now());
}

// Ends the Works when the GPU no longer accesses their buffers. If it still does at the deadline,
// they end anyway, but their memory is never freed.
void GpuGroup::drain(TimePoint now) {
  const bool drained =
      std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->drained(); });
  if (!drained && now < until_) return;
  if (!drained) {
    for (const auto& lane : lanes_) never_free(lane);
    for (const auto& call : held_.all()) never_free(call);
  }
  const auto lanes = std::exchange(lanes_, {});
  draining_ = false;
  gone_ = engine_ == nullptr;
  for (const auto& lane : lanes) lane->end_all(error_);
}

void GpuGroup::detach() noexcept {
  if (!std::exchange(engine_, nullptr)) return;
  if (error_ || lanes_.empty()) {
    gone_ = !draining_;
    return watch_.end(this);
  }
  leaving_ = true;
  until_ = waiter_->now() + kLeave;
  try {
    for (const auto& lane : lanes_) lane->finalize();
    watch_.begin(shared_from_this());
  } catch (...) {  // leaves without finalizing
    until_ = TimePoint::min();
    take_leave(waiter_->now());
  }
}

void GpuGroup::take_leave(TimePoint now) noexcept {
  try {
    bool all = true;
    for (const auto& lane : lanes_) {
      lane->poll(now);
      all &= lane->finalized();
    }
    if (!all && now < until_) return;
  } catch (...) {  // a peer left without finalizing, and so does this rank
  }
  leaving_ = false;
  messages_.forget_lanes();
  lane_ = nullptr;
  lanes_.clear();
  gone_ = true;
  watch_.end(this);
}

}  // namespace trireme::inline v0::comm::nccl
