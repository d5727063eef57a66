#include "trireme/comm/engine.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/waiter/in_context.h"
#include "trireme/comm/calls/inline_run.h"
#include "trireme/comm/device/device_backend.h"
#include "trireme/comm/device/place.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::size_t kScratchKept = 64u << 20;

/// The owner of a Work that has its own deadline, or whose call need not be the running one.
class OwnDeadline final : public WorkOwner {
 public:
  OwnDeadline(std::shared_ptr<Engine> engine, Deadline deadline, std::optional<CallNames> call)
      : engine_(std::move(engine)), deadline_(deadline), call_(std::move(call)) {}
  Deadline timeout() const noexcept override { return deadline_; }
  TimePoint on_deadline(TimePoint now, Duration waited) override {
    return call_ ? engine_->waits.on_deadline_of(*call_, now, waited)
                 : engine_->waits.on_deadline(now, waited);
  }
  void on_unseen_failure(std::exception_ptr error) noexcept override {
    engine_->abort(std::move(error));
  }
  void on_wait_begin(std::string_view text) noexcept override {
    engine_->waits.on_wait_begin(text);
  }
  void on_wait_end(std::string_view text, Duration waited) noexcept override {
    engine_->waits.on_wait_end(text, waited);
  }

 private:
  const std::shared_ptr<Engine> engine_;
  const Deadline deadline_;
  const std::optional<CallNames> call_;  // null: the running collective
};

// True if the call may be open while a later collective runs.
bool is_aside(const Operation& operation) {
  return operation.is_message() || operation.device || operation.staged;
}

Work make_work(Engine& engine, Call& call, Deadline deadline) {
  const Operation& operation = call.operation;
  const auto self = engine.shared_from_this();
  std::shared_ptr<WorkOwner> owner(self, &engine.waits);
  const bool aside = is_aside(operation);
  if (aside || !deadline.is_job()) {
    owner =
        std::make_shared<OwnDeadline>(self, deadline.or_else(engine.waits.timeout()),
                                      aside ? std::optional(names_of(operation)) : std::nullopt);
  }
  call.source.emplace(engine.waiter, std::move(owner), title_of(operation));
  if (operation.device) call.source->set_device(operation.device);
  if (operation.staged) call.source->set_device(operation.staged->last);
  return call.source->work();
}

// Adds this rank, and the operation and label of `op`, to `error`, unless `op` is null.
std::exception_ptr with_context(const std::exception_ptr& error, const Operation* op,
                                const GroupFacts& facts) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    if (!op || !e.label().empty()) return error;
    try {
      ErrorContext context = e.context();
      if (context.rank < 0) context.rank = facts.world_rank();
      context.operation = std::string(name_of(op->called()));
      context.label = op->label;
      throw_error(e.code(), e.message(), std::move(context));
    } catch (...) {
      return std::current_exception();
    }
  } catch (...) {
    return error;
  }
}

}  // namespace

bool OpenTransfers::any() const noexcept {
  return std::any_of(open_.begin(), open_.end(), [](int open) { return open != 0; });
}

void Family::add(const std::shared_ptr<Engine>& engine) {
  std::erase_if(members_, [](const auto& one) { return one.expired(); });
  members_.push_back(engine);
  if (failure_) engine->break_with(failure_);
}

void Family::fail(const std::exception_ptr& error) noexcept {
  if (failure_) return;
  failure_ = error;
  const auto members = members_;  // a copy: break_with() may change members_
  for (const auto& one : members) {
    if (const auto engine = one.lock()) engine->break_with(error);
  }
}

Engine::Engine(std::shared_ptr<net::Transport> given, CommunicatorOptions options,
               std::shared_ptr<Family> family)
    : transport(std::move(given)),
      waiter(transport->waiter()),
      facts(transport->rank(), transport->size(), family == nullptr, std::move(options)),
      waits(*this),
      messages(*this),
      transfers(facts.size),
      fold_plans(facts.size),
      family_(family ? std::move(family) : std::make_shared<Family>()) {
  staged = std::make_shared<StagedCalls>(*this);
  if (facts.options.device) device = facts.options.device(*this);
  if (facts.options.trace)
    trace = std::make_unique<CallTrace>(facts.options.trace, waiter, facts.options.name);
}

std::shared_ptr<Engine> Engine::create(std::shared_ptr<net::Transport> transport,
                                       CommunicatorOptions options,
                                       std::shared_ptr<Family> family) {
  auto engine = std::make_shared<Engine>(std::move(transport), std::move(options), family);
  engine->arenas = Arenas::make(*engine->transport, engine->facts.options.world_ranks);
  if (engine->arenas) {
    engine->board_watch = std::make_shared<BoardWatch>(*engine);
    engine->backends_.push_back(make_shared_backend(*engine));
  }
  if (auto native = make_native_backend(*engine)) engine->backends_.push_back(std::move(native));
  engine->backends_.push_back(make_rounds_backend(*engine));
  in_context(engine->waiter, [&] {
    engine->family_->add(engine);
    if (engine->arenas && !engine->failure.broken())
      engine->share([&] { return engine->arenas->allocate_board(); });
  });
  if (engine->board_watch) engine->waiter->add(engine->board_watch);
  engine->watching_ = engine->board_watch != nullptr;
  return engine;
}

Arena Engine::allocate(std::size_t bytes, Device where) {
  if (where.kind != DeviceKind::Cpu) {
    if (device) return device->allocate(bytes, where);
    if (!copies) refuse_device(where, facts.world_rank());
    const auto memory = copies->device_memory(bytes, where);
    return {{memory.get(), bytes}, memory, where};
  }
  net::Region region;
  if (!arenas) {
    region = net::private_region(bytes);
    return {region.bytes, region.owner};
  }
  in_context(waiter, [&] { region = share([&] { return arenas->allocate(bytes); }); });
  return {region.bytes, region.owner};
}

// Allocates a region and announces it with a call, after which the peers map it. Later calls wait
// for this one. A rank that cannot allocate breaks the group, so that the peers see its error.
net::Region Engine::share(const std::function<net::Region()>& allocate) {
  Operation op;
  op.kind = OpKind::Allocate;
  try {
    op.region = allocate();
  } catch (...) {
    fail(std::current_exception(), &op);
    throw;
  }
  const net::Region region = op.region;
  op.count = region.bytes.size();
  enqueue(std::make_shared<Call>(std::move(op)));
  return region;
}

Work Engine::submit(Operation&& operation, Deadline deadline) {
  const auto error = failure.error();
  if (error && !operation.staged) return Work::failed(error);
  const auto call = std::make_shared<Call>(std::move(operation));
  if (trace) trace->submitted(call->times);
  Work work;
  // A call that ends at once gets no Work, which saves an allocation and wake-ups.
  const auto begin_now = [&] {
    enqueue(call);
    if (board_watch) board_watch->look_briefly(*call);
    if (call->failure) work = Work::failed(call->failure);
    if (!call->ended) work = make_work(*this, *call, deadline);
  };
  if (!is_aside(call->operation) && waiter->try_run(std::ref(begin_now))) return work;
  work = make_work(*this, *call, deadline);
  waiter->run([engine = shared_from_this(), call] { engine->enqueue(call); });
  return work;
}

void Engine::abort(std::exception_ptr error) noexcept {
  waiter->run([engine = shared_from_this(), error = std::move(error)] {
    // If all ranks have done their part of the running call, it must succeed here, too.
    if (engine->board_watch && engine->board_watch->pending()) engine->board_watch->look();
    engine->fail(error);
  });
}

void Engine::enqueue(std::shared_ptr<Call> call) {
  if (failure.broken()) {
    staged->abandon(*call);
    return call->end(failure.error());
  }
  if (call->operation.is_message()) {
    if (staged->ready(call)) messages.run(call);
    return;
  }
  queue.push(std::move(call));
  pump();
}

void Engine::pump() {
  if (pumping_) return;  // finish() was called inside begin(); the loop below continues
  pumping_ = true;
  while (!failure.broken()) {
    const std::shared_ptr<Call> call = queue.start();
    if (!call) break;
    if (!staged->ready(call)) {
      queue.stop();
      break;
    }
    try {
      begin(call);
    } catch (...) {                    // the algorithm is wrong, or there is not enough memory
      fail(std::current_exception());  // empties the queue
    }
  }
  pumping_ = false;
}

void Engine::begin(const std::shared_ptr<Call>& call) {
  Operation& op = call->operation;
  if (trace) trace->begun(call->times);
  waits.set_running(names_of(op));
  if (op.kind != OpKind::Allocate) {
    call->inlined = !op.on_device && fits_header(op, fold_plans.of(op.leaves()));
    if (!call->inlined && op.on_device) call->run = device->begin(call);
    for (std::size_t i = 0; !call->inlined && !call->run && i < backends_.size(); ++i) {
      call->run = backends_[i]->begin(call);
    }
  }
  call->own.header = header_of(op, facts.options.epoch);
  // The first arena holds the board. Later ones are announced on it, so that a peer that makes
  // another call notices.
  has_board() ? board_watch->post(call) : exchange_headers(*this, call);
}

void Engine::on_agreed(const std::shared_ptr<Call>& call,
                       std::span<const std::byte* const> payloads) {
  if (trace) trace->agreed(call->times);
  if (const auto run = call->run) {
    if (run->polled()) board_watch->await_run();
    return run->run();
  }
  const Operation& op = call->operation;
  if (op.kind == OpKind::Allocate) {
    try {
      arenas->map(op.region, payloads);
    } catch (const Error&) {  // a peer has left, or there is no address space or memory
      return fail(std::current_exception());
    }
  } else {
    complete_inline(op, fold_plans.of(op.leaves()), facts.rank, payloads);
  }
  finish(call);
}

void Engine::finish(const std::shared_ptr<Call>& call) {
  const std::shared_ptr<Call> keep = call;
  if (trace && call->operation.kind != OpKind::Allocate) {
    trace->finished(call->operation, call->times);
    trace->submitted(call->times);  // its next step
  }
  queue.stop();
  if (board_watch) board_watch->stop();
  call->run = nullptr;
  try {
    if (call->go_on()) return pump();
  } catch (...) {
    fail(std::current_exception());
  }
  if (failure.broken()) return;
  queue.pop();
  scratch.trim(kScratchKept);
  staged->deliver(call);
  pump();
  if (leaving_ && queue.empty()) retire();
}

void Engine::begin_staged(const std::shared_ptr<Call>& call) {
  call->operation.is_message() ? messages.run(call) : pump();
}

void Engine::given_to_device() {
  queue.stop();
  if (failure.broken()) return;
  queue.pop();
  pump();
  if (leaving_ && queue.empty()) retire();
}

void Engine::fail(std::exception_ptr error, const Operation* about) noexcept {
  if (failure.broken()) return;
  break_with(with_context(error, about ? about : queue.first_user_call(), facts));
}

void Engine::break_with(const std::exception_ptr& error) noexcept {
  const std::shared_ptr<Engine> keep = leaving_ ? shared_from_this() : nullptr;
  if (!failure.set(error)) return;
  if (board_watch) board_watch->stop();
  if (has_board()) board().abort(error, *waiter);
  // Settles every transfer, so that no buffer is accessed any more. A group that is leaving must
  // not abort the transport, which the rest of the family still uses.
  if (!leaving_) transport->abort(error);
  for (const auto& call : queue.take_all()) {
    if (device && device->holds(*call)) continue;  // it ends the call when the device is done
    if (call->run) call->run->cancel();
    call->run = nullptr;  // if it is running, its caller holds another reference
    staged->abandon(*call);
    call->end(error);
  }
  staged->fail(error);
  if (device) device->abort(error);
  leaving_ ? retire() : family_->fail(error);
}

void Engine::transfer_failed(int peer, const std::exception_ptr& error) noexcept {
  if (failure.broken() || queue.empty()) return fail(error);
  if (has_board()) return board_watch->transfer_failed(error);
  const std::shared_ptr<Call> call = queue.front();
  // The peer's envelope agreed, so it may have left because of a mismatch with another rank. Waits
  // for the remaining envelopes, which would show it.
  if (!call->heard.empty() && (call->heard[peer] || call->posting)) {
    if (!call->lost) call->lost = error;
    return;
  }
  fail(error);
}

}  // namespace trireme::inline v0::comm
