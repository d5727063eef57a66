#include "trireme/comm/engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/comm/device_backend.h"
#include "trireme/comm/inline_run.h"
#include "trireme/comm/rounds/phase.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::size_t kScratchKept = 64u << 20;
constexpr std::uint64_t kTagSpace = 1ull << 63;  // tags of the engine's own messages

/// The owner of a Work with its own deadline, or of a call outside the order of the collectives.
class OwnDeadline final : public WorkOwner {
 public:
  OwnDeadline(std::shared_ptr<Engine> engine, Deadline deadline, std::string title)
      : engine_(std::move(engine)), deadline_(deadline), title_(std::move(title)) {}
  Deadline timeout() const noexcept override { return deadline_; }
  TimePoint on_deadline(TimePoint now, Duration waited) override {
    return title_.empty() ? engine_->on_deadline(now, waited)
                          : engine_->on_deadline(now, waited, title_);
  }
  void on_unseen_failure(std::exception_ptr error) noexcept override {
    engine_->on_unseen_failure(std::move(error));
  }
  void on_wait_begin(std::string_view text) noexcept override { engine_->on_wait_begin(text); }
  void on_wait_end(std::string_view text, Duration waited) noexcept override {
    engine_->on_wait_end(text, waited);
  }

 private:
  const std::shared_ptr<Engine> engine_;
  const Deadline deadline_;
  const std::string title_;  // empty: the running collective's
};

// Numbers hosts in the order of their first appearance.
std::vector<int> numbered(const std::vector<std::string>& names) {
  std::vector<int> numbers;
  for (auto name = names.begin(); name != names.end(); ++name) {
    const auto first = std::find(names.begin(), name, *name);
    const int next = numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end()) + 1;
    numbers.push_back(first == name ? next : numbers[first - names.begin()]);
  }
  return numbers;
}

// Not in the order of the collectives.
bool is_aside(const Operation& operation) {
  return operation.kind == OpKind::Send || operation.kind == OpKind::Recv || operation.device;
}

}  // namespace

net::Tag tag_of(Channel channel) noexcept {
  return {kTagSpace | static_cast<std::uint64_t>(channel)};
}

Engine::Engine(std::shared_ptr<net::Transport> transport, CommunicatorOptions options,
               std::shared_ptr<Family> family)
    : transport_(std::move(transport)),
      options_(std::move(options)),
      waiter_(transport_->waiter()),
      rank_(transport_->rank()),
      size_(transport_->size()),
      hosts_(numbered(options_.host_of_rank)),
      family_(family ? std::move(family) : std::make_shared<Family>()),
      head_(family_.use_count() == 1),
      expected_(size_, 0) {
  if (options_.device) device_ = options_.device(*this);
  if (options_.trace) trace_ = std::make_unique<CallTrace>(options_.trace, waiter_, options_.name);
}

Work Engine::submit(Operation&& operation, Deadline deadline) {
  if (const auto error = failure()) return Work::failed(error);
  const auto call = std::make_shared<Call>(std::move(operation));
  if (trace_) trace_->submitted(call->times);
  Work work;
  // A call that ends at once is spared its Work, and the wake-ups that come with it.
  const auto begin = [&] {
    enqueue(call);
    look_briefly(*call);
    if (call->failure) work = Work::failed(call->failure);
    if (!call->ended) work = call->source.emplace(source_of(call->operation, deadline)).work();
  };
  if (!is_aside(call->operation) && waiter_->try_run(std::ref(begin))) return work;
  work = call->source.emplace(source_of(call->operation, deadline)).work();
  waiter_->run([self = shared_from_this(), call] { self->enqueue(call); });
  return work;
}

WorkSource Engine::source_of(const Operation& operation, Deadline deadline) {
  std::shared_ptr<WorkOwner> owner = shared_from_this();
  const bool aside = is_aside(operation);
  if (aside || !deadline.is_job()) {
    owner = std::make_shared<OwnDeadline>(shared_from_this(), deadline.or_else(timeout()),
                                          aside ? title_of(operation) : std::string());
  }
  WorkSource source(waiter_, std::move(owner), title_of(operation));
  if (operation.device) source.set_device(operation.device);
  return source;
}

void Call::end(const std::exception_ptr& error) {
  ended = true;
  failure = error;
  if (source) error ? source->fail(error) : source->complete();
}

const FoldPlan& Engine::fold_plan(std::uint32_t total) {
  auto& plan = fold_plans_[total];
  if (!plan) plan = std::make_unique<FoldPlan>(make_fold_plan(total, size_));
  return *plan;
}

FoldPlan make_fold_plan(std::uint32_t total, int size) {
  FoldPlan plan;
  std::vector<kernel::LeafRange> all;
  for (int rank = 0; rank < size; ++rank) {
    auto nodes = kernel::maximal_nodes(kernel::contiguous_share(total, size, rank), total);
    plan.most_terms = std::max(plan.most_terms, nodes.size());
    all.insert(all.end(), nodes.begin(), nodes.end());
    plan.nodes_of.push_back(std::move(nodes));
  }
  plan.steps = kernel::fold_steps(all, total);
  return plan;
}

void Engine::abort(std::exception_ptr error) noexcept {
  waiter_->run([self = shared_from_this(), error = std::move(error)] { self->fail(error); });
}

std::exception_ptr Engine::failure() const noexcept {
  if (!broken()) return nullptr;
  std::lock_guard lock(mutex_);
  return failure_;
}

void Engine::enqueue(std::shared_ptr<Call> call) {
  if (broken()) return call->end(failure());
  const OpKind kind = call->operation.kind;
  if (kind == OpKind::Send || kind == OpKind::Recv) return run_point_to_point(call);
  call->operation.sequence = kind == OpKind::Allocate ? ++allocations_ : ++calls_;
  queue_.push_back(std::move(call));
  pump();
}

void Engine::pump() {
  if (pumping_) return;  // finish() was called inside begin(); the loop below continues
  pumping_ = true;
  while (!running_ && !queue_.empty() && !broken()) {
    running_ = true;
    begin(std::shared_ptr<Call>(queue_.front()));  // a failure empties the queue
  }
  pumping_ = false;
}

void Engine::begin(const std::shared_ptr<Call>& call) {
  Operation& op = call->operation;
  if (trace_) trace_->begun(call->times);
  {
    std::lock_guard lock(mutex_);
    title_ = title_of(op);
  }
  if (op.kind != OpKind::Allocate) {
    call->inlined = !op.on_device && fits_header(op, fold_plan(op.total));
    try {
      if (!call->inlined) call->run = run_of(call);
    } catch (...) {  // the algorithm is wrong, or there is not enough memory
      return fail(std::current_exception());
    }
  }
  call->own.header = header_of(op, options_.epoch);
  // The first arena holds the board. Later ones are announced on it, so that a peer that makes
  // another call notices.
  arenas_ && arenas_->board() ? post_header(call) : exchange_headers(call);
}

std::shared_ptr<Run> Engine::run_of(const std::shared_ptr<Call>& call) {
  if (call->operation.on_device) return device_->begin(call);
  std::shared_ptr<Run> run;
  for (std::size_t i = 0; !run && i < backends_.size(); ++i) run = backends_[i]->begin(call);
  return run;
}

void Engine::exchange_headers(const std::shared_ptr<Call>& call) {
  const Operation& op = call->operation;
  if (call->inlined) fill_payload(op, rank_, call->own.payload.data());
  if (op.kind == OpKind::Allocate) arenas_->announce(op.region, call->own.payload.data());
  call->envelopes.resize(static_cast<std::size_t>(size_));
  call->envelopes[rank_] = call->own;
  call->heard.resize(static_cast<std::size_t>(size_));
  auto phase = Phase::open(*this, [self = shared_from_this(), call] { self->on_envelopes(call); });
  // All sends come before the receives, so that every peer gets the header even if a receive below
  // finds a mismatch. `posting` defers errors until all receives are posted: a peer that left
  // because of a mismatch may have sent its header before.
  call->posting = true;
  for (int step = 1; step < size_; ++step) {
    phase->send((rank_ + step) % size_, tag_of(Channel::Header),
                std::as_bytes(std::span(&call->own, 1)));
  }
  if (call->run) call->run->announced();
  for (int step = 1; step < size_; ++step) {
    const int from = (rank_ + size_ - step) % size_;
    phase->recv(from, tag_of(Channel::Header),
                std::as_writable_bytes(std::span(&call->envelopes[from], 1)),
                [self = shared_from_this(), call, from] {
                  call->heard[from] = true;
                  if (!self->broken())
                    self->check_header(*call, from, call->envelopes[from].header);
                });
  }
  call->posting = false;
  for (int peer = 0; peer < size_ && call->lost; ++peer) {
    if (peer != rank_ && !call->heard[peer] && transport_->lost(peer)) fail(call->lost);
  }
  phase->close();
}

void Engine::on_envelopes(const std::shared_ptr<Call>& call) {
  call->heard.clear();
  if (call->lost) return fail(call->lost);
  std::vector<const std::byte*> payloads;
  for (const Envelope& envelope : call->envelopes) payloads.push_back(envelope.payload.data());
  on_agreed(call, payloads);
}

void Engine::on_agreed(const std::shared_ptr<Call>& call,
                       std::span<const std::byte* const> payloads) {
  if (trace_) trace_->agreed(call->times);
  if (const auto run = call->run) {
    wait_for(run->polled() ? Waits::Run : Waits::No);
    return run->run();
  }
  if (call->operation.kind == OpKind::Allocate) {
    try {
      arenas_->map(call->operation.region, payloads);
    } catch (const Error&) {  // a peer has left, or there is no address space or memory
      return fail(std::current_exception());
    }
  } else {
    complete_inline(call->operation, fold_plan(call->operation.total), rank_, payloads);
  }
  finish(call);
}

bool Engine::check_header(const Call& call, int peer, const Header& other) {
  const Header& own = call.own.header;
  if (same_call(own, other)) return true;
  const auto side = [this](int rank, const Header& header, const Header& against) {
    return "rank " + std::to_string(world_rank(rank)) + " called " + call_text(header, against);
  };
  const std::string a = side(rank_, own, other), b = side(peer, other, own);
  if (own.leaving || other.leaving) {
    const int gone = other.leaving ? peer : rank_;
    fail(std::make_exception_ptr(
        UnevenInput("rank " + std::to_string(world_rank(gone)) + "'s loop has ended, " +
                        (gone == peer ? a : b) + group_text(),
                    {.rank = world_rank(rank_),
                     .operation = std::string(name_of(call.operation.called())),
                     .peer = world_rank(gone),
                     .label = call.operation.label,
                     .advice = "Give every rank the same number of batches; "
                               "trireme::Sampler does."})));
    return false;
  }
  fail(std::make_exception_ptr(MismatchError(
      (rank_ < peer ? a + ", " + b : b + ", " + a) + group_text(),
      {.rank = world_rank(rank_),
       .operation = std::string(name_of(call.operation.called())),
       .peer = world_rank(peer),
       .label = call.operation.label,
       .advice = "All ranks must call the same operations with the same arguments in the same "
                 "order; look for a branch that only some ranks take."})));
  return false;
}

// Replaces the call's operation by its next step; false if there is none, or if that failed.
bool Engine::goes_on(Call& call) {
  const Operation& ended = call.operation;
  Operation next;
  next.label = ended.label;
  next.leaving = ended.leaving;
  next.sequence = ended.sequence;
  next.algorithm = ended.algorithm;
  next.part_of = ended.part_of;
  next.device = ended.device;
  next.step = static_cast<std::uint8_t>(ended.step + 1);
  try {
    if (!ended.next(next)) return false;
  } catch (...) {
    fail(std::current_exception());
    return false;
  }
  next.next = std::move(call.operation.next);
  call.operation = std::move(next);
  call.own = {};
  call.envelopes.clear();
  call.heard.clear();
  return true;
}

void Engine::finish(const std::shared_ptr<Call>& call) {
  const std::shared_ptr<Call> keep = call;
  if (trace_ && call->operation.kind != OpKind::Allocate)
    trace_->finished(call->operation, call->times);
  running_ = false;
  wait_for(Waits::No);
  call->run = nullptr;
  if (call->operation.next && goes_on(*call)) return pump();
  if (broken()) return;
  queue_.pop_front();
  scratch_.trim(kScratchKept);
  call->end();
  pump();
  if (leaving_ && queue_.empty()) retire();
}

void Engine::given_to_device() {
  running_ = false;
  if (broken()) return;
  queue_.pop_front();
  pump();
  if (leaving_ && queue_.empty()) retire();
}

void Engine::ended_on_device(const std::shared_ptr<Call>& call) {
  if (trace_) trace_->finished(call->operation, call->times);
}

void Engine::fail(std::exception_ptr error) noexcept {
  if (broken()) return;
  break_with(with_context(std::move(error)));
}

void Engine::break_with(const std::exception_ptr& error) noexcept {
  const std::shared_ptr<Engine> keep = leaving_ ? shared_from_this() : nullptr;
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = error;
    broken_.store(true, std::memory_order_release);
  }
  wait_for(Waits::No);
  if (arenas_ && arenas_->board()) board().abort(error, *waiter_);
  // Settles every transfer, so that no buffer is accessed any more. A group that is leaving must
  // not abort the transport, which the rest of the family still uses.
  if (!leaving_) transport_->abort(error);
  const auto queue = std::exchange(queue_, {});
  for (const auto& call : queue) {
    if (device_ && device_->holds(*call)) continue;  // it ends the call when the device is done
    if (call->run) call->run->cancel();
    call->run = nullptr;  // if it is running, its caller holds another reference
    call->end(error);
  }
  if (device_) device_->abort(error);
  leaving_ ? retire() : family_->fail(error);
}

void Engine::transfer_failed(int peer, const std::exception_ptr& error) noexcept {
  if (broken() || queue_.empty()) return fail(error);
  const std::shared_ptr<Call> call = queue_.front();
  if (arenas_ && arenas_->board()) {
    if (waits_ == Waits::Headers && check_headers_here(*call) < 0) return;
    const int gone = board().first_aborted();
    return fail(gone >= 0 ? board().error_of(gone) : error);
  }
  // The peer's envelope agreed, so it may have left because of a mismatch with another rank. Waits
  // for the remaining envelopes, which would show it.
  if (!call->heard.empty() && (call->heard[peer] || call->posting)) {
    if (!call->lost) call->lost = error;
    return;
  }
  fail(error);
}

const Operation* Engine::first_user_call() const noexcept {
  const auto call = std::find_if(queue_.begin(), queue_.end(), [](const auto& one) {
    return one->operation.kind != OpKind::Allocate;
  });
  return call == queue_.end() ? nullptr : &(*call)->operation;
}

std::exception_ptr Engine::with_context(std::exception_ptr error) const noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    const Operation* op = first_user_call();
    if (!op || !e.label().empty()) return error;
    try {
      ErrorContext context = e.context();
      if (context.rank < 0) context.rank = world_rank(rank_);
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

}  // namespace trireme::inline v0::comm
