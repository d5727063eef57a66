#include "trireme/comm/shared/direct_base.h"

#include <utility>

namespace trireme::inline v0::comm {

DirectBase::DirectBase(Engine& engine, std::shared_ptr<Call> call, DirectPointers& pointers)
    : engine_(engine),
      call_(std::move(call)),
      rank_(engine.facts.rank),
      size_(engine.facts.size),
      pointers_(pointers),
      memory_(engine, pointers.locations) {}

void DirectBase::declare_done() {
  engine_.board().own().done.store(call_->number, std::memory_order_release);
  (void)DirectBase::waits();  // see Engine::post_header
  engine_.board().notify_peers();
}

// All ranks must be done, not only those that read from this one.
bool DirectBase::owes(int peer) const {
  return engine_.board().of(peer).done.load(std::memory_order_acquire) < call_->number;
}

bool DirectBase::waits() const {
  return !engine_.board().all_reached(&BoardMemory::done, call_->number);
}

bool DirectBase::poll() {
  if (DirectBase::waits()) return false;
  ended();
  engine_.finish(call_);
  return true;
}

}  // namespace trireme::inline v0::comm
