#include "trireme/comm/nccl/gpu_group.h"

#include <algorithm>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/phase.h"

namespace trireme {
inline namespace v0 {
namespace comm {
namespace nccl {
namespace {

constexpr Duration kFirstPause = std::chrono::microseconds(20);
constexpr Duration kLongestPause = std::chrono::milliseconds(1);
// A peer may leave when its own part has ended: the last of the data is under way then.
constexpr Duration kGrace = std::chrono::seconds(1);
constexpr Duration kLeave = std::chrono::seconds(1);

template <class Visit>
void for_each_buffer(const Operation& operation, Visit visit) {
  visit(operation.in);
  visit(operation.out);
  for (const Term& term : operation.terms) visit(term.value);
}

void never_free(std::shared_ptr<Lane> lane, std::vector<std::shared_ptr<Call>> calls) {
  static auto* const kept =
      new std::vector<std::pair<std::shared_ptr<Lane>, std::vector<std::shared_ptr<Call>>>>;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  kept->emplace_back(std::move(lane), std::move(calls));
}

}  // namespace

Device device_of(const Operation& operation) {
  Device found;
  bool any = false;
  for_each_buffer(operation, [&](const Buffer& buffer) {
    if (buffer.count == 0 && !buffer.data) return;  // a part that this rank does not have
    if (any && !(buffer.device == found)) {
      throw ConfigError("the buffers of one call lie on different devices",
                        {.operation = title_of(operation), .advice = "Copy them to one first."});
    }
    found = buffer.device;
    any = true;
  });
  return found;
}

GpuGroup::GpuGroup(Engine& engine, std::shared_ptr<Gpu> gpu)
    : engine_(&engine),
      waiter_(engine.transport().waiter()),
      gpu_(std::move(gpu)),
      rank_(engine.rank()),
      size_(engine.size()),
      timeout_(engine.options().timeout) {}

GpuGroup::~GpuGroup() = default;

std::shared_ptr<const FoldPlan> GpuGroup::fold_plan(std::uint32_t total) {
  std::lock_guard lock(mutex_);
  auto& plan = plans_[total];
  if (!plan) plan = std::make_shared<const FoldPlan>(make_fold_plan(total, size_));
  return plan;
}

void GpuGroup::note_streams(const Operation& operation, std::vector<GpuEvent>& ready) {
  std::set<void*> streams;
  for_each_buffer(operation, [&](const Buffer& buffer) {
    if (buffer.count > 0) streams.insert(buffer.stream.handle);
  });
  for (void* const stream : streams) ready.push_back(gpu_->record(stream));
}

void GpuGroup::prepare(Operation& operation, bool native) {
  const Device device = device_of(operation);
  const auto require = [&](bool condition, const std::string& what, const std::string& advice) {
    if (!condition)
      throw ConfigError(what, {.rank = rank_, .operation = title_of(operation), .advice = advice});
  };
  require(device.index == gpu_->index(),
          "a buffer lies on GPU " + std::to_string(device.index) + ", this rank's is GPU " +
              std::to_string(gpu_->index()),
          "Allocate it on job.device().");
  require(operation.kind != OpKind::Send && operation.kind != OpKind::Recv,
          "messages between two ranks take CPU memory",
          "Copy it, or use broadcast in a group of two.");
  operation.on_gpu = true;
  operation.may_be_direct = false;
  operation.algorithm = gpu_algorithm(operation, native, engine_->options().reproducible);
  const auto plan = fold_plan(operation.total);
  require(gpu_->can_fold() || !needs_fold(operation, {rank_, size_, plan.get()}),
          "this build has no CUDA kernels for the reproducible sum",
          "Build where nvcc is found, or use comm.algorithm nccl-native.");
  std::vector<GpuEvent> ready;
  note_streams(operation, ready);
  operation.device = std::make_shared<GpuCall>(gpu_, std::move(ready), plan);
}

bool GpuGroup::holds(const Call& call) const noexcept {
  return std::any_of(held_.begin(), held_.end(),
                     [&](const auto& one) { return one.get() == &call; });
}

void GpuGroup::run(const std::shared_ptr<Call>& call) {
  const Operation& op = call->operation;
  const std::shared_ptr<GpuCall> mine = op.device;
  const GpuPlace place{rank_, size_, mine->plan.get()};
  mine->title = title_of(op);
  mine->operation = std::string(name_of(op.called()));
  mine->label = op.label;
  mine->scratch_bytes = scratch_bytes(op, place);
  mine->make_steps = [call, place](std::byte* scratch) {
    return steps_of(call->operation, place, scratch);
  };
  mine->on_enqueued = [this, call] {
    if (engine_) engine_->given_to_gpu(call);
  };
  mine->on_end = [self = shared_from_this(), call](const std::exception_ptr& error) {
    std::erase(self->held_, call);
    self->open_.fetch_sub(1, std::memory_order_acq_rel);
    if (self->engine_ && !error) self->engine_->ended_on_gpu(call);
    error ? call->source.fail(error) : call->source.complete();
  };
  held_.push_back(call);
  open_.fetch_add(1, std::memory_order_acq_rel);
  try {
    start_lane();
    lane_->push(mine);
  } catch (...) {
    mine->end(std::current_exception());
    return fail(std::current_exception());
  }
  watch();
  poll();
}

void GpuGroup::start_lane() {
  if (!lane_) lane_ = std::make_shared<Lane>(gpu_);
  if (lane_->started() || std::exchange(spreading_, true)) return;
  size_ == 1 ? lane_->start_alone() : spread_id();
}

// From rank 0 to all, each message on its own: nobody waits for anybody but rank 0.
void GpuGroup::spread_id() {
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
    const Gpu::Current current(*gpu_);
    if (const int result = gpu_->nccl().unique_id(&id_); result != kNcclSuccess) {
      throw ResourceError(std::string("NCCL: ") + gpu_->nccl().error_text(result),
                          {.operation = "ncclGetUniqueId",
                           .advice = "NCCL_SOCKET_IFNAME names the interface that it may use."});
    }
    for (int peer = 1; peer < size_; ++peer) {
      phase->send(peer, tag_of(Channel::Gpu), std::as_bytes(std::span(&id_, 1)));
    }
  } else {
    phase->recv(0, tag_of(Channel::Gpu), std::as_writable_bytes(std::span(&id_, 1)));
  }
  phase->close();
}

void GpuGroup::watch() {
  if (!std::exchange(added_, true)) waiter_->add(shared_from_this());
  pause_ = kFirstPause;
  if (std::exchange(watching_, true)) return;
  tick();
}

// Sleeps a little longer each time that nothing has moved; the GPU rings nobody.
void GpuGroup::tick() {
  if (!working()) {
    watching_ = false;
    return rest();
  }
  waiter_->run_at(waiter_->now() + pause_, [self = shared_from_this()] {
    self->pause_ = self->poll() ? kFirstPause : std::min(2 * self->pause_, kLongestPause);
    self->tick();
  });
}

bool GpuGroup::poll() {
  if (!lane_ || !working()) return false;
  const TimePoint now = waiter_->now();
  if (draining_) return drain(now), !draining_;
  if (leaving_) return take_leave(now), !leaving_;
  const std::shared_ptr<GpuGroup> keep = shared_from_this();
  const std::shared_ptr<Lane> lane = lane_;  // what it tells may break the group
  try {
    const bool moved = lane->poll(now);
    if (!engine_ || error_ || !busy()) return moved;
    lane->look_for_errors();
    look_for_lost_peers(now);
    if (!error_) look_for_standstill(now);
    return moved;
  } catch (...) {
    fail(about(lane->at(), std::current_exception()));
    return true;
  }
}

void GpuGroup::look_for_lost_peers(TimePoint now) {
  int lost = -1;
  for (int peer = 0; peer < size_ && lost < 0; ++peer) {
    if (peer != rank_ && engine_->transport().lost(peer)) lost = peer;
  }
  if (lost < 0) return;
  if (lost_since_ == TimePoint::max()) lost_since_ = now;
  if (now - lost_since_ < kGrace) return;
  fail(about(lane_->at(),
             std::make_exception_ptr(PeerLost(
                 "rank " + std::to_string(engine_->world_rank(lost)) + " is lost",
                 {.peer = engine_->world_rank(lost),
                  .advice = "See that rank's own last lines; resume from the last checkpoint."}))));
}

// Where somebody waits on the host, that wait's own deadline decides.
void GpuGroup::look_for_standstill(TimePoint now) {
  const GpuCall* const call = lane_->running();
  if (!call || call->begun_at == TimePoint::max() || engine_->waits() > 0) return;
  if (now - call->begun_at < timeout_) return;
  fail(about(call, engine_->gpu_timeout(now - call->begun_at, call->operation, call->label)));
}

// The error with the rank, the call and, where it is known, the peer.
std::exception_ptr GpuGroup::about(const GpuCall* call, const std::exception_ptr& error) const {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    ErrorContext context = known.context();
    std::string message = known.message();
    context.rank = engine_ ? engine_->world_rank(rank_) : rank_;
    if (call && context.operation != call->operation) {
      if (!context.operation.empty()) message += " in " + context.operation;
      context.operation = call->operation;
      context.label = call->label;
    }
    for (int peer = 0; engine_ && peer < size_ && context.peer < 0; ++peer) {
      if (peer != rank_ && engine_->transport().lost(peer))
        context.peer = engine_->world_rank(peer);
    }
    try {
      throw_error(known.code(), std::move(message), std::move(context));
    } catch (...) {
      return std::current_exception();
    }
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
  if (!lane_) return;
  lane_->abort(error);
  draining_ = true;
  until_ = waiter_->now() + timeout_;
  watch();
  drain(waiter_->now());
}

// Works whose buffers the GPU may still touch are not ended, until it has let go of them or does
// not come back at all; then their memory is never given back.
void GpuGroup::drain(TimePoint now) {
  if (!lane_->drained()) {
    if (now < until_) return;
    never_free(lane_, held_);
  }
  const std::shared_ptr<Lane> lane = std::exchange(lane_, nullptr);
  draining_ = false;
  gone_ = engine_ == nullptr;
  lane->end_all(error_);
}

void GpuGroup::detach() noexcept {
  if (!std::exchange(engine_, nullptr)) return;
  if (error_ || !lane_ || !lane_->started()) {
    gone_ = !draining_;
    return rest();
  }
  try {
    lane_->finalize();
    until_ = waiter_->now() + kLeave;
    leaving_ = true;
    watch();
  } catch (...) {
    leaving_ = false;
    lane_ = nullptr;
    gone_ = true;
    rest();
  }
}

// The waiter holds the group no longer than there is something to look after.
void GpuGroup::rest() {
  if (!engine_ && !working() && std::exchange(added_, false)) waiter_->remove(this);
}

void GpuGroup::take_leave(TimePoint now) {
  try {
    lane_->poll(now);
    if (!lane_->finalized() && now < until_) return;
  } catch (...) {  // a peer has gone without; so does this rank
  }
  leaving_ = false;
  lane_ = nullptr;
  gone_ = true;
}

}  // namespace nccl
}  // namespace comm
}  // namespace v0
}  // namespace trireme
