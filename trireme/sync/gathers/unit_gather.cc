#include "trireme/sync/gathers/unit_gather.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {

UnitGather::UnitGather(comm::Communicator& group, std::vector<ParameterStore*> stores,
                       OnShardEvent on_event)
    : group_(group),
      stores_(std::move(stores)),
      on_event_(std::move(on_event)),
      pool_(stores_.empty() ? Device() : stores_.front()->device()) {
  for (const ParameterStore* store : stores_) {
    TRIREME_CHECK(group.size() == store->ownership().owners());
    if (store->own_device() != store->device() && !fetches_)
      fetches_.emplace(tensor::at_device(store->device()));
  }
}

UnitGather::~UnitGather() {
  for (auto& [place, held] : held_) store(place.first).hide(place.second);
}

void UnitGather::begin(std::span<const Use> order) {
  if (++begun_ < stores_.size()) return;
  begun_ = 0;
  TRIREME_CHECK(held_.empty());
  uses_.clear();
  std::copy_if(order.begin(), order.end(), std::back_inserter(uses_),
               [](const Use& use) { return needs_weights(use.phase); });
  issued_ = next_ = 0;
  if (!uses_.empty()) issue(0);
}

void UnitGather::issue(std::size_t use) {
  if (use < issued_ || use >= uses_.size()) return;
  TRIREME_CHECK(use == issued_);
  ++issued_;
  const std::uint32_t part = uses_[use].part;
  for (const std::uint32_t unit : units(uses_[use])) {
    GatheredUnit& held = held_[{part, unit}];
    if (held.wanted++ > 0) continue;
    held.buffer = pool_.take(store(part).ownership().units()[unit].bytes);
    held.arrived = gather(store(part), unit, held.buffer);
    tell(ShardEvent::Kind::Gather, {part, unit});
  }
}

Work UnitGather::gather(const ParameterStore& store, std::uint32_t unit,
                        const BufferPool::Lease& to) {
  const Unit& layout = store.ownership().units()[unit];
  const Buffer out{.data = to.data.get(),
                   .count = layout.bytes,
                   .dtype = DType::U8,
                   .device = store.device(),
                   .owner = to.data};
  Buffer in = store.own(unit);
  std::optional<c10::StreamGuard> fetching;
  if (fetches_) {
    const at::Tensor& kept = store.own_bytes(unit);
    const auto fetched = std::make_shared<at::Tensor>(
        at::empty(kept.sizes(), at::TensorOptions(fetches_->device()).dtype(at::kByte)));
    fetches_->fetch(kept, *fetched);
    fetches_->hold_until_fetched(fetched->storage().data_ptr());
    in = tensor::to_buffer(*fetched);
    in.owner = fetched;
    fetching.emplace(fetches_->fetching());
  }
  return group_.all_gather_v(in, out, layout.counts(),
                             {.label = "weights of block " + std::to_string(unit)});
}

void UnitGather::wait(std::size_t use) {
  const std::uint32_t part = uses_[use].part;
  for (const std::uint32_t unit : units(uses_[use])) {
    GatheredUnit& held = held_.at({part, unit});
    tensor::wait_for(std::exchange(held.arrived, {}), tensor::at_device(store(part).device()));
    store(part).show(unit, held.buffer.data.get());
  }
}

void UnitGather::pass(std::size_t place) {
  for (; next_ < place; ++next_) {
    issue(next_);
    issue(next_ + 1);
    release(next_);
  }
}

Pin UnitGather::acquire(Use use, std::size_t place) {
  if (on_event_) on_event_({.kind = ShardEvent::Kind::Use, .use = use});
  TRIREME_CHECK(place >= next_);
  TRIREME_CHECK(place < uses_.size());
  pass(place);
  issue(place);
  next_ = place + 1;
  wait(place);
  issue(place + 1);
  return Pin([this, place] { release(place); });
}

void UnitGather::release(std::size_t use) {
  const std::uint32_t part = uses_[use].part;
  for (const std::uint32_t unit : units(uses_[use])) {
    const auto held = held_.find({part, unit});
    TRIREME_CHECK(held != held_.end());
    if (--held->second.wanted > 0) continue;
    tensor::wait_for(held->second.arrived, tensor::at_device(store(part).device()));
    store(part).hide(unit);
    pool_.give(std::move(held->second.buffer));
    held_.erase(held);
    tell(ShardEvent::Kind::Free, {part, unit});
  }
}

void UnitGather::tell(ShardEvent::Kind kind, UnitKey place) const {
  if (!on_event_) return;
  const auto [part, unit] = place;
  on_event_({.kind = kind,
             .use = {.part = part},
             .number = unit,
             .bytes = store(part).ownership().units()[unit].bytes});
}

}  // namespace trireme::inline v0::parallel
