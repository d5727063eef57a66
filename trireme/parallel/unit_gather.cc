#include "trireme/parallel/unit_gather.h"

#include "trireme/base/check.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

UnitGather::UnitGather(comm::Communicator& group, ParameterStore& store, OnShardEvent on_event)
    : group_(group), store_(store), on_event_(std::move(on_event)) {
  TRIREME_CHECK(group.size() == store.ownership().owners());
}

UnitGather::~UnitGather() {
  for (auto& [unit, held] : held_) store_.hide(unit);
}

void UnitGather::begin(std::vector<std::uint16_t> uses) {
  TRIREME_CHECK(held_.empty());
  uses_ = std::move(uses);
  issued_ = next_ = 0;
  if (!uses_.empty()) issue(0);
}

void UnitGather::issue(std::size_t use) {
  if (use < issued_ || use >= uses_.size()) return;
  TRIREME_CHECK(use == issued_);
  ++issued_;
  for (const std::uint32_t unit : store_.units_of_block(uses_[use])) {
    Held& held = held_[unit];
    if (held.wanted++ > 0) continue;
    const Unit& layout = store_.ownership().units()[unit];
    held.buffer = pool_.take(layout.bytes);
    const std::span<std::byte> own = store_.own(unit);
    const Buffer in{own.data(), own.size(), DType::U8};
    const Buffer out{.data = held.buffer.data.get(),
                     .count = layout.bytes,
                     .dtype = DType::U8,
                     .owner = held.buffer.data};
    const auto counts = layout.counts();
    held.arrived =
        group_.all_gather_v(in, out, counts, {.label = "weights of block " + std::to_string(unit)});
    if (on_event_)
      on_event_({.kind = ShardEvent::Kind::Gather, .number = unit, .bytes = layout.bytes});
  }
}

void UnitGather::wait(std::size_t use) {
  for (const std::uint32_t unit : store_.units_of_block(uses_[use])) {
    Held& held = held_.at(unit);
    held.arrived.wait();
    store_.show(unit, held.buffer.data.get());
  }
}

void UnitGather::pass(std::size_t use) {
  for (; next_ < use; ++next_) {
    issue(next_);
    issue(next_ + 1);
    release(next_);
  }
}

void UnitGather::acquire(std::size_t use) {
  TRIREME_CHECK(use >= next_);
  TRIREME_CHECK(use < uses_.size());
  pass(use);
  issue(use);
  next_ = use + 1;
  wait(use);
  issue(use + 1);
}

void UnitGather::release(std::size_t use) {
  for (const std::uint32_t unit : store_.units_of_block(uses_[use])) {
    const auto held = held_.find(unit);
    TRIREME_CHECK(held != held_.end());
    if (--held->second.wanted > 0) continue;
    held->second.arrived.wait();
    store_.hide(unit);
    pool_.give(std::move(held->second.buffer));
    held_.erase(held);
    if (on_event_)
      on_event_({.kind = ShardEvent::Kind::Free,
                 .number = unit,
                 .bytes = store_.ownership().units()[unit].bytes});
  }
}

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
