// UnitGather: gathers the whole weights of blocks ahead of their use and frees them after it
// (ZeRO-3, and within the shard groups of hybrid).
//
// The order of uses is known before a step and is the same on every rank of the group: F0 F1 ... B1
// B0 for every micro-batch, or the passes of a pipeline's rank through all of its stages, as
// scheduled. A use is *issued* (its missing units are gathered) when the use before it is acquired,
// and *released* before the next one is acquired:
//
//     acquire F0 | issue F1 | compute | release F0 | acquire F1 | issue F2 | ...
//
// So at most two uses' units are in memory, and the last block's stay for a backward pass that
// follows at once. Every rank issues the same gathers in the same order, even one that skips uses
// (a block without a gradient, a failed micro-batch, a round without a micro-batch). Intervals in
// the host's memory are fetched on a separate stream, on which the gather follows. Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/sync/buckets/buffer_pool.h"
#include "trireme/sync/gathers/parameter_store.h"
#include "trireme/sync/gathers/weight_gather.h"
#include "trireme/tensor/devices/copy_streams.h"

namespace trireme::inline v0::parallel {

class UnitGather final : public WeightGather {
 public:
  /// `group`: a communicator for this object only, one rank per owner of each of the stores. It and
  /// the stores, which Use::part numbers, outlive this object.
  UnitGather(comm::Communicator& group, std::vector<ParameterStore*> stores,
             OnShardEvent on_event = {});
  ~UnitGather() override;

  bool in_passes() const override { return true; }
  /// Issues the first use once the syncs of all stores have called it.
  void begin(std::span<const Use> order) override;
  Pin acquire(Use use, std::size_t place) override;
  void pass(std::size_t place) override;
  Work publish() override { return {}; }

 private:
  struct GatheredUnit {
    int wanted = 0;  // uses that are issued and not yet released
    BufferPool::Lease buffer;
    Work arrived;  // until it has been waited for
  };
  using UnitKey = std::pair<std::uint32_t, std::uint32_t>;  // part, unit
  ParameterStore& store(std::uint32_t part) const { return *stores_[part]; }
  const std::vector<std::uint32_t>& units(const Use& use) const {
    return store(use.part).units_of_block(use.block);
  }
  void issue(std::size_t use);
  void release(std::size_t use);
  Work gather(const ParameterStore& store, std::uint32_t unit, const BufferPool::Lease& to);
  void wait(std::size_t use);
  void tell(ShardEvent::Kind kind, UnitKey place) const;

  comm::Communicator& group_;
  std::vector<ParameterStore*> stores_;
  OnShardEvent on_event_;
  BufferPool pool_;
  std::optional<tensor::CopyStreams> fetches_;  // if intervals are on the host
  std::size_t begun_ = 0;                       // syncs that have called begin()
  std::vector<Use> uses_;                       // that need weights
  std::size_t issued_ = 0;                      // uses before it are issued
  std::size_t next_ = 0;                        // uses before it were acquired or skipped
  std::map<UnitKey, GatheredUnit> held_;
};

}  // namespace trireme::inline v0::parallel
