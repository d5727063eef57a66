#include "trireme/comm/staging/staged_calls.h"

#include <algorithm>
#include <map>
#include <utility>

#include "trireme/comm/engine.h"

namespace trireme::inline v0::comm {
namespace {

bool fetched(const Call& call) {
  const auto& staged = call.operation.staged;
  return !staged || staged->fetched.empty() || staged->mark->reached();
}

// Buffers of one operation that are the same memory get the same block.
class Blocks {
 public:
  explicit Blocks(Staged& staged) : staged_(staged) {}
  void replace(Buffer& buffer, bool given, bool result) {
    if (buffer.count == 0) {
      buffer = {.dtype = buffer.dtype};
      return;
    }
    auto& [block, is_fetched] = blocks_[{buffer.data, buffer.bytes()}];
    if (!block) block = staged_.copies->host_block(buffer.bytes());
    if (given && !std::exchange(is_fetched, true)) staged_.fetched.push_back({buffer, block});
    if (result) staged_.results.push_back({buffer, block});
    buffer = {.data = block->bytes().data(),
              .count = buffer.count,
              .dtype = buffer.dtype,
              .owner = block};
  }

 private:
  Staged& staged_;
  std::map<std::pair<void*, std::size_t>, std::pair<std::shared_ptr<HostBlock>, bool>> blocks_;
};

// In a group of one rank, the sum of all leaves is that rank's only term.
void run_alone(Operation& operation, Staged& staged) {
  const Buffer from = operation.terms.empty() ? operation.in : operation.terms.front().value;
  staged.mark = staged.copies->copy(operation.out, from);
  staged.last->set(staged.mark);
  staged.alone = {from, operation.out};
  const Buffer none{.dtype = operation.dtype};
  operation.in = operation.out = none;
  for (Term& term : operation.terms) term.value = none;
  operation.count = 0;
  std::fill(operation.counts.begin(), operation.counts.end(), 0);
  std::fill(operation.recv_counts.begin(), operation.recv_counts.end(), 0);
}

}  // namespace

void stage(Operation& operation, Device device, std::shared_ptr<DeviceCopies> copies,
           const GroupFacts& facts) {
  const auto staged = std::make_shared<Staged>(Staged{std::move(copies), device, {}, {}});
  operation.staged = staged;
  if (facts.size == 1 && !operation.is_message()) return run_alone(operation, *staged);
  const bool is_root = operation.kind == OpKind::Broadcast && facts.rank == operation.root;
  Blocks blocks(*staged);
  for (Term& term : operation.terms) blocks.replace(term.value, true, false);
  blocks.replace(operation.in, operation.kind != OpKind::Broadcast || is_root, false);
  blocks.replace(operation.out, false, !is_root);
  staged->mark = staged->copies->fetch(device, staged->fetched);
  // A collective that gives this rank nothing still waits for the others, so that its end bounds
  // how much memory is under way.
  if (operation.is_message() && staged->results.empty()) staged->last->set(staged->mark);
}

StagedCalls::StagedCalls(Engine& engine)
    : engine_(&engine), waiter_(engine.waiter), watch_(engine.waiter) {}

// Messages keep their order: a message that could begin waits for those before it.
bool StagedCalls::ready(const std::shared_ptr<Call>& call) {
  const auto waits = [](const auto& one) { return one->operation.is_message(); };
  const bool behind =
      call->operation.is_message() && std::any_of(waiting_.begin(), waiting_.end(), waits);
  try {
    if (!behind && fetched(*call)) return true;
  } catch (...) {
    engine_->fail(std::current_exception(), &call->operation);
    if (call->operation.is_message()) call->end(engine_->failure.error());
    return false;
  }
  if (std::find(waiting_.begin(), waiting_.end(), call) == waiting_.end()) waiting_.push_back(call);
  watch();
  return false;
}

void StagedCalls::deliver(const std::shared_ptr<Call>& call) {
  const auto& staged = call->operation.staged;
  if (!staged) return call->end();
  try {
    if (!staged->results.empty()) {
      staged->mark = staged->copies->store(staged->device, staged->results);
      staged->last->set(staged->mark);
      engine_->waiter->wake();
    } else if (staged->mark->reached()) {
      return call->end();
    }
  } catch (...) {
    engine_->fail(std::current_exception(), &call->operation);
    return call->end(engine_->failure.error());
  }
  delivered_.push_back(call);
  delivering_ = true;
  watch();
}

void StagedCalls::abandon(const Call& call) {
  if (!call.operation.staged) return;
  abandoned_.push_back(call.operation.staged);
  watch();
}

void StagedCalls::fail(const std::exception_ptr& error) noexcept {
  std::vector<std::shared_ptr<Call>> open = std::exchange(delivered_, {});
  delivering_ = false;
  for (const auto& call : std::exchange(waiting_, {}))
    if (call->operation.is_message()) open.push_back(call);  // the queue ends the others
  for (const auto& call : open) {
    abandon(*call);
    call->end(error);
  }
}

void StagedCalls::watch() {
  pending_ = true;
  watch_.begin(shared_from_this());
}

void StagedCalls::detach() noexcept {
  if (engine_ == nullptr) return;
  until_ = waiter_->now() + engine_->facts.options.timeout;
  engine_ = nullptr;
  for (auto* calls : {&waiting_, &delivered_})
    for (const auto& call : std::exchange(*calls, {}))
      if (call->operation.staged) abandoned_.push_back(call->operation.staged);
  watch_.end(this);
}

bool StagedCalls::poll() {
  const auto keep = shared_from_this();
  bool moved = false;
  try {
    std::erase_if(abandoned_, [](const auto& staged) { return staged->mark->reached(); });
    if (engine_ != nullptr) {
      moved = begin_ready();
      moved |= end_delivered();
    } else if (waiter_->now() >= until_) {
      for (const auto& staged : std::exchange(abandoned_, {})) never_free(staged);
    }
  } catch (...) {  // the device has failed; it accesses no memory any more
    abandoned_.clear();
    if (engine_ != nullptr) engine_->fail(std::current_exception());
  }
  pending_ = busy() || !abandoned_.empty();
  if (engine_ == nullptr && !pending_) waiter_->wake();
  return moved;
}

bool StagedCalls::begin_ready() {
  bool moved = false;
  while (!waiting_.empty() && fetched(*waiting_.front())) {
    const std::shared_ptr<Call> call = waiting_.front();
    waiting_.erase(waiting_.begin());
    moved = true;
    engine_->begin_staged(call);
    if (engine_ == nullptr) break;
  }
  return moved;
}

bool StagedCalls::end_delivered() {
  bool moved = false;
  while (!delivered_.empty() && delivered_.front()->operation.staged->mark->reached()) {
    const std::shared_ptr<Call> call = delivered_.front();
    delivered_.erase(delivered_.begin());
    delivering_ = !delivered_.empty();
    moved = true;
    call->end();
  }
  return moved;
}

}  // namespace trireme::inline v0::comm
