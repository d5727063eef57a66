#include "trireme/comm/engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/comm/inline_run.h"
#include "trireme/comm/phase.h"
#include "trireme/comm/program_run.h"
#include "trireme/comm/registry.h"

namespace trireme {
inline namespace v0 {
namespace comm {
namespace {

constexpr std::size_t kPieceBytes = 512u << 10;
constexpr std::size_t kScratchKept = 64u << 20;
constexpr std::uint64_t kTagSpace = 1ull << 63;  // ours

/// An operation with a deadline of its own.
class OwnDeadline final : public WorkOwner {
 public:
  OwnDeadline(std::shared_ptr<Engine> engine, Deadline deadline)
      : engine_(std::move(engine)), deadline_(deadline) {}
  Deadline timeout() const noexcept override { return deadline_; }
  TimePoint on_deadline(TimePoint now, Duration waited) override {
    return engine_->on_deadline(now, waited);
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
};

// Pipelined algorithms: pieces small enough to be added while in the caches, large enough that a
// round's latency does not show.
int pieces_of(std::size_t bytes, int size) noexcept {
  int pieces = 1;
  while (pieces < 8 && bytes / static_cast<std::size_t>(size) / pieces > kPieceBytes) pieces *= 2;
  return pieces;
}

// Numbers the hosts in the order in which their names first appear.
std::vector<int> numbered(const std::vector<std::string>& names) {
  std::vector<int> numbers;
  for (auto name = names.begin(); name != names.end(); ++name) {
    const auto first = std::find(names.begin(), name, *name);
    const int next = numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end()) + 1;
    numbers.push_back(first == name ? next : numbers[first - names.begin()]);
  }
  return numbers;
}

}  // namespace

net::Tag tag_of(Channel channel) noexcept {
  return {kTagSpace | static_cast<std::uint64_t>(channel)};
}

Engine::Engine(std::shared_ptr<net::Transport> transport, CommunicatorOptions options)
    : transport_(std::move(transport)),
      options_(std::move(options)),
      waiter_(transport_->waiter()),
      rank_(transport_->rank()),
      size_(transport_->size()),
      hosts_(numbered(options_.host_of_rank)),
      expected_(size_, 0) {}

Work Engine::submit(Operation operation, Deadline deadline) {
  if (const auto error = failure()) return Work::failed(error);
  std::shared_ptr<WorkOwner> owner = shared_from_this();
  if (!deadline.is_job()) owner = std::make_shared<OwnDeadline>(shared_from_this(), deadline);
  WorkSource source(waiter_, std::move(owner), title_of(operation));
  auto call = std::make_shared<Call>(Call{std::move(operation), std::move(source)});
  Work work = call->source.work();
  waiter_->run([self = shared_from_this(), call = std::move(call)]() mutable {
    self->enqueue(std::move(call));
  });
  return work;
}

const FoldPlan& Engine::fold_plan(std::uint32_t total) {
  auto& plan = fold_plans_[total];
  if (plan) return *plan;
  plan = std::make_unique<FoldPlan>();
  std::vector<kernel::LeafRange> all;
  for (int rank = 0; rank < size_; ++rank) {
    auto nodes = kernel::maximal_nodes(kernel::contiguous_share(total, size_, rank), total);
    plan->most_terms = std::max(plan->most_terms, nodes.size());
    all.insert(all.end(), nodes.begin(), nodes.end());
    plan->nodes_of.push_back(std::move(nodes));
  }
  plan->steps = kernel::fold_steps(all, total);
  return *plan;
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
  if (broken()) return call->source.fail(failure());
  const OpKind kind = call->operation.kind;
  if (kind == OpKind::Send || kind == OpKind::Recv) return run_point_to_point(call);
  call->operation.sequence = kind == OpKind::Allocate ? ++allocations_ : ++calls_;
  queue_.push_back(std::move(call));
  pump();
}

void Engine::pump() {
  if (pumping_) return;  // finish() inside begin(): the loop below goes on
  pumping_ = true;
  while (!running_ && !queue_.empty() && !broken()) {
    running_ = true;
    begin(std::shared_ptr<Call>(queue_.front()));  // a failure empties the queue
  }
  pumping_ = false;
}

void Engine::begin(const std::shared_ptr<Call>& call) {
  Operation& op = call->operation;
  // What draws a run wants the program's rounds; a direct run has none.
  if (op.may_be_direct && can_read_ && !options_.on_run) op.algorithm = "direct";
  {
    std::lock_guard lock(mutex_);
    title_ = title_of(op);
  }
  call->own.header = header_of(op, options_.epoch);
  // Once there is a board, arenas are announced on it: a peer that calls something else sees it.
  if (op.kind == OpKind::Allocate) return board_ ? post_header(call) : exchange_headers(call);
  call->inlined = fits_header(op, fold_plan(op.total));
  if (!call->inlined && op.algorithm == "direct") {
    call->direct = make_direct(*this, call);
  } else if (!call->inlined) {
    call->program = std::make_shared<ProgramRun>(*this, call, route_of(op));
  }
  can_map_ ? post_header(call) : exchange_headers(call);
}

void Engine::exchange_headers(const std::shared_ptr<Call>& call) {
  const Operation& op = call->operation;
  if (call->inlined) fill_payload(op, rank_, call->own.payload.data());
  if (op.kind == OpKind::Allocate) {
    fill_announcement(op, call->own.payload.data());
  }
  call->envelopes.resize(static_cast<std::size_t>(size_));
  call->envelopes[rank_] = call->own;
  auto phase = Phase::open(*this, [self = shared_from_this(), call] { self->on_envelopes(call); });
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
    phase->send(to, tag_of(Channel::Header), std::as_bytes(std::span(&call->own, 1)));
    phase->recv(from, tag_of(Channel::Header),
                std::as_writable_bytes(std::span(&call->envelopes[from], 1)));
  }
  if (call->program && op.out.bytes() <= kSendAhead) call->program->send_ahead();
  phase->close();
}

void Engine::on_envelopes(const std::shared_ptr<Call>& call) {
  std::vector<const std::byte*> payloads;
  for (int peer = 0; peer < size_; ++peer) {
    if (!check_header(*call, peer, call->envelopes[peer].header)) return;
    payloads.push_back(call->envelopes[peer].payload.data());
  }
  on_agreed(call, payloads);
}

void Engine::on_agreed(const std::shared_ptr<Call>& call,
                       std::span<const std::byte* const> payloads) {
  if (const auto program = call->program) return program->run();
  if (const auto direct = call->direct) {
    wait_for(Waits::Direct);
    return direct->run();
  }
  if (call->operation.kind == OpKind::Allocate) {
    map_region(*call, payloads);
    if (broken()) return;
  } else {
    complete_inline(call->operation, fold_plan(call->operation.total), rank_, payloads);
  }
  finish(call);
}

bool Engine::check_header(const Call& call, int peer, const Header& other) {
  const Header& own = call.own.header;
  if (same_call(own, other)) return true;
  const auto side = [](int rank, const Header& header, const Header& against) {
    return "rank " + std::to_string(rank) + " called " + call_text(header, against);
  };
  const std::string a = side(rank_, own, other), b = side(peer, other, own);
  if (own.leaving || other.leaving) {
    const int gone = other.leaving ? peer : rank_;
    fail(std::make_exception_ptr(
        UnevenInput("rank " + std::to_string(gone) + "'s loop has ended, " + (gone == peer ? a : b),
                    {.rank = rank_,
                     .operation = std::string(name_of(call.operation.kind)),
                     .peer = gone,
                     .label = call.operation.label,
                     .advice = "Give every rank the same number of batches; "
                               "trireme::Sampler does."})));
    return false;
  }
  fail(std::make_exception_ptr(MismatchError(
      rank_ < peer ? a + ", " + b : b + ", " + a,
      {.rank = rank_,
       .operation = std::string(name_of(call.operation.kind)),
       .peer = peer,
       .label = call.operation.label,
       .advice = "All ranks must call the same operations with the same arguments in the same "
                 "order; look for a branch that only some ranks take."})));
  return false;
}

void Engine::finish(const std::shared_ptr<Call>& call) {
  const std::shared_ptr<Call> keep = call;
  running_ = false;
  wait_for(Waits::No);
  queue_.pop_front();
  call->program = nullptr;
  call->direct = nullptr;
  scratch_.trim(kScratchKept);
  call->source.complete();
  pump();
}

void Engine::fail(std::exception_ptr error) noexcept {
  error = with_context(std::move(error));
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = error;
    broken_.store(true, std::memory_order_release);
  }
  wait_for(Waits::No);
  if (board_) board_->abort(error, *waiter_);
  transport_->abort(error);  // settles every transfer; from here on no buffer is touched
  const auto queue = std::exchange(queue_, {});
  for (const auto& call : queue) {
    if (call->program) call->program->cancel();
    call->program = nullptr;  // whoever runs it holds it
    call->direct = nullptr;
    call->source.fail(error);
  }
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
      if (context.rank < 0) context.rank = rank_;
      context.operation = std::string(name_of(op->kind));
      context.label = op->label;
      throw_error(e.code(), e.message(), std::move(context));
    } catch (...) {
      return std::current_exception();
    }
  } catch (...) {
    return error;
  }
}

const Route& Engine::route_of(const Operation& op) {
  std::string key(name_of(op.kind));
  const int pieces = pieces_of(op.out.bytes(), size_);
  for (const std::size_t part :
       {std::size_t(op.total), std::size_t(op.root), std::size_t(pieces)}) {
    key += "/" + std::to_string(part);
  }
  key += "/" + op.algorithm;
  auto& route = routes_[key];
  if (route) return *route;
  const Program program = record(op.algorithm, find_algorithm(op.kind, op.algorithm)->generator,
                                 size_, op.root, hosts_, pieces);
  const Layout layout = layout_of(op.kind, size_, op.total, op.root);
  route = std::make_unique<Route>(resolve(op.algorithm, program, layout)[rank_]);
  return *route;
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
