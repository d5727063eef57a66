#include "trireme/comm/engine.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/comm/algorithms.h"
#include "trireme/comm/inline_run.h"
#include "trireme/comm/phase.h"
#include "trireme/comm/program_run.h"

namespace trireme {
inline namespace v0 {
namespace comm {
namespace {

constexpr std::size_t kSendAhead = 4096;             // bytes that leave with the header
constexpr std::size_t kScratchKept = 64u << 20;
constexpr std::uint64_t kTagSpace = 1ull << 63;      // ours; user tags use the rest

std::string seconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

std::span<const std::byte> bytes_of(const Header& header) {
  return std::as_bytes(std::span(&header, 1));
}
std::span<std::byte> bytes_of(Header& header) {
  return std::as_writable_bytes(std::span(&header, 1));
}

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

}  // namespace

net::Tag tag_of(Channel channel, std::uint32_t lane) noexcept {
  return {kTagSpace | std::uint64_t(lane) << 8 | static_cast<std::uint64_t>(channel)};
}

Engine::Engine(std::shared_ptr<net::Transport> transport, CommunicatorOptions options)
    : transport_(std::move(transport)),
      options_(std::move(options)),
      waiter_(transport_->waiter()),
      rank_(transport_->rank()),
      size_(transport_->size()),
      expected_(size_, 0) {}

Engine::~Engine() = default;

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

Arena Engine::allocate(std::size_t bytes, Device device) {
  Arena arena;
  std::exception_ptr error;
  std::atomic<bool> done{false};
  waiter_->run([&] {
    try {
      const net::Region region =
          transport_->register_memory({static_cast<std::byte*>(nullptr), std::max<std::size_t>(bytes, 64)}, device);
      std::erase_if(arenas_, [](const Known& known) { return known.owner.expired(); });
      arenas_.push_back({{region.id, region.bytes, nullptr}, region.owner});
      arena = Arena(region);
    } catch (...) {
      error = std::current_exception();
    }
    done = true;
    waiter_->wake();
  });
  if (!done) waiter_->wait_until([&] { return done.load(); }, TimePoint::max());
  if (error) std::rethrow_exception(error);
  return arena;
}

const net::Region* Engine::arena_of(const void* data, std::size_t bytes, std::uint64_t* offset) {
  const auto* begin = static_cast<const std::byte*>(data);
  for (const Known& known : arenas_) {
    const std::byte* base = known.region.bytes.data();
    if (begin < base || begin + bytes > base + known.region.bytes.size()) continue;
    if (known.owner.expired()) continue;
    *offset = static_cast<std::uint64_t>(begin - base);
    return &known.region;
  }
  return nullptr;
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
  call->operation.sequence = ++calls_;
  queue_.push_back(std::move(call));
  pump();
}

void Engine::pump() {
  if (pumping_) return;   // finish() inside begin(): the loop below goes on
  pumping_ = true;
  while (!running_ && !queue_.empty() && !broken()) {
    running_ = true;
    begin(queue_.front());
  }
  pumping_ = false;
}

void Engine::begin(const std::shared_ptr<Call>& keep) {
  const std::shared_ptr<Call> call = keep;
  Operation& op = call->operation;
  {
    std::lock_guard lock(mutex_);
    title_ = title_of(op);
  }
  call->own = header_of(op, options_.epoch);
  call->headers.resize(size_);
  const bool inlined = fits_header(op, rank_, size_);
  if (inlined) fill_header(*call, rank_);
  call->headers[rank_] = call->own;
  auto phase = Phase::open(*this, [self = shared_from_this(), call] { self->on_agreed(call); });
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
    phase->send(to, tag_of(Channel::Header), bytes_of(std::as_const(call->own)));
    phase->recv(from, tag_of(Channel::Header), bytes_of(call->headers[from]));
  }
  if (!inlined) {
    call->run = std::make_shared<ProgramRun>(*this, call, route_of(op));
    if (op.count * size_of(op.dtype) <= kSendAhead) call->run->send_ahead();
  }
  phase->close();
}

void Engine::on_agreed(const std::shared_ptr<Call>& call) {
  if (!check_headers(*call)) return;
  if (const auto run = call->run) return run->run();
  complete_inline(*call, rank_, size_);
  finish(call);
}

bool Engine::check_headers(const Call& call) {
  for (int peer = 0; peer < size_; ++peer) {
    const Header& other = call.headers[peer];
    if (same_call(call.own, other)) continue;
    const bool own_first = rank_ < peer;
    const auto side = [](int rank, const Header& header, const Header& against) {
      return "rank " + std::to_string(rank) + " called " + describe(header, against);
    };
    const std::string a = side(rank_, call.own, other), b = side(peer, other, call.own);
    fail(std::make_exception_ptr(MismatchError(
        (own_first ? a + ", " + b : b + ", " + a),
        {.rank = rank_, .operation = std::string(name_of(call.operation.kind)), .peer = peer,
         .label = call.operation.label,
         .advice = "All ranks must call the same operations with the same arguments in the same "
                   "order; look for a branch that only some ranks take."})));
    return false;
  }
  return true;
}

void Engine::finish(const std::shared_ptr<Call>& call) {
  running_ = false;
  queue_.pop_front();
  call->run = nullptr;
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
  transport_->abort(error);   // settles every transfer; from here on no buffer is touched
  const auto queue = std::exchange(queue_, {});
  for (const auto& call : queue) {
    call->run = nullptr;
    call->source.fail(error);
  }
}

std::exception_ptr Engine::with_context(std::exception_ptr error) const noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    if (queue_.empty() || !running_ || !e.label().empty()) return error;
    try {
      ErrorContext context = e.context();
      const Operation& op = queue_.front()->operation;
      if (context.rank < 0) context.rank = rank_;
      context.operation = std::string(name_of(op.kind));
      context.label = op.label;
      throw_error(e.code(), e.message(), std::move(context));
    } catch (...) {
      return std::current_exception();
    }
  } catch (...) {
    return error;
  }
}

// The header and the data leave together; the receiver looks at the header before it takes the data.
void Engine::run_point_to_point(const std::shared_ptr<Call>& call) {
  Operation& op = call->operation;
  const net::Tag head{kTagSpace | 1ull << 62 | std::uint64_t(op.user_tag) << 8};
  const net::Tag body{head.value | 1};
  const int peer = op.root;
  const bool sends = op.kind == OpKind::Send;
  op.root = static_cast<int>(op.user_tag);
  call->own = header_of(op, options_.epoch);
  call->headers.resize(1);
  const auto end = [self = shared_from_this(), call] { call->source.complete(); };
  const auto guard = [self = shared_from_this(), call](const std::exception_ptr& error) {
    if (error) self->fail(error);
    if (self->broken()) call->source.fail(self->failure());
    return !self->broken();
  };
  if (sends) {
    const Work works[] = {transport_->send(peer, head, bytes_of(std::as_const(call->own))),
                          transport_->send(peer, body, op.in.as_bytes())};
    Work::all(works).on_settled([guard, end](const std::exception_ptr& error) {
      if (guard(error)) end();
    });
    return;
  }
  expect(peer, 1);
  const Work header = transport_->recv(peer, head, bytes_of(call->headers[0]));
  header.on_settled([self = shared_from_this(), call, guard, end, peer, body](const auto& error) {
    if (!guard(error)) return;
    const Header& other = call->headers[0];
    if (!same_call(call->own, other)) {
      const auto text = "rank " + std::to_string(peer) + " called " + describe(other, call->own) +
                        ", rank " + std::to_string(self->rank_) + " receives " +
                        describe(call->own, other);
      guard(std::make_exception_ptr(MismatchError(
          text, {.rank = self->rank_, .operation = "recv", .peer = peer,
                 .label = call->operation.label,
                 .advice = "Send and receive must name the same count and type."})));
      return;
    }
    self->transport_->recv(peer, body, call->operation.out.as_bytes())
        .on_settled([self, guard, end, peer](const std::exception_ptr& failed) {
          if (!guard(failed)) return;
          self->expect(peer, -1);
          end();
        });
  });
}

const Route& Engine::route_of(const Operation& op) {
  std::string key(name_of(op.kind));
  key += "/" + op.algorithm + "/" + std::to_string(op.total) + "/" + std::to_string(op.root);
  auto& route = routes_[key];
  if (route) return *route;
  const auto resolved = [&](Generator generator, const Layout& layout) {
    const Program program = record(op.algorithm, generator, size_, op.root);
    return std::make_unique<Route>(resolve(op.algorithm, program, layout)[rank_]);
  };
  switch (op.kind) {
    case OpKind::AllReduce:
      route = resolved(op.algorithm == "ring" ? ring : naive, all_reduce_layout(size_, op.total));
      break;
    case OpKind::Broadcast: route = resolved(binomial_broadcast, broadcast_layout(op.root)); break;
    case OpKind::AllGather: route = resolved(pairwise_all_gather, all_gather_layout()); break;
    default: route = resolved(pairwise_reduce_scatter, reduce_scatter_layout(size_)); break;
  }
  return *route;
}

std::string Engine::running_title() const {
  std::lock_guard lock(mutex_);
  return title_;
}

TimePoint Engine::on_deadline(TimePoint now, Duration waited) {
  PeerWatch::Verdict verdict;
  const std::string title = running_title();
  if (options_.watch) verdict = options_.watch->ask(title, waited);
  if (verdict.keep_waiting) {
    const std::string line = verdict.explanation + "; rank " + std::to_string(rank_) +
                             " waits in " + title + " since " + seconds(waited);
    options_.on_stall ? options_.on_stall(line) : void(std::fprintf(stderr, "%s\n", line.c_str()));
    return now + options_.timeout;
  }
  waiter_->run([self = shared_from_this(), waited, lost = verdict.lost_rank] {
    if (!self->broken()) self->fail(self->timeout_error(waited, lost));
  });
  return TimePoint::max();
}

std::exception_ptr Engine::timeout_error(Duration waited, int lost_rank) const {
  ErrorContext context{.rank = rank_, .operation = running_title()};
  if (!queue_.empty()) {
    context.operation = std::string(name_of(queue_.front()->operation.kind));
    context.label = queue_.front()->operation.label;
  }
  const auto host = [&](int peer) {
    const bool known = static_cast<std::size_t>(peer) < options_.host_of_rank.size();
    return known ? " on " + options_.host_of_rank[peer] : std::string();
  };
  if (lost_rank >= 0) {
    context.peer = lost_rank;
    context.advice = "See that rank's own last lines; resume from the last checkpoint.";
    return std::make_exception_ptr(PeerLost(
        "rank " + std::to_string(lost_rank) + host(lost_rank) + " is lost", std::move(context)));
  }
  std::string missing;
  for (int peer = 0; peer < size_; ++peer) {
    if (expected_[peer] <= 0) continue;
    if (context.peer < 0) context.peer = peer;
    missing += (missing.empty() ? "" : ", ") + std::to_string(peer) + host(peer);
  }
  context.advice = "Look for a rank that stopped or took another branch; raise `timeout` if it was "
                   "only slow.";
  return std::make_exception_ptr(TimeoutError(
      "waited " + seconds(waited) + " for " + (missing.empty() ? "its own sends" : "rank " + missing),
      std::move(context)));
}

void Engine::on_wait_begin(std::string_view description) noexcept {
  if (options_.watch) options_.watch->activity(description, true);
}

void Engine::on_wait_end(std::string_view description, Duration waited) noexcept {
  waited_.fetch_add(waited.count(), std::memory_order_relaxed);
  if (options_.watch) options_.watch->activity(description, false);
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
