// ParameterStore: the parameters of a Stage on this rank, whole or as this rank's shards.
//
// A block's parameters form one Unit (sync/levels/ownership.h), into which the block's leaves
// point. Weights in the compute type are whole on every rank, or (`shards_weights`, ZeRO-3) only
// this rank's interval is kept, and show() and hide() attach and detach the whole. Master weights
// (fp32 or fp64) are the compute weights if the types agree, else copies of this rank's intervals.
//
//                        plain (one owner)      ZeRO-1, 2               ZeRO-3, hybrid
//     fp32 weights       whole                  whole                   shard
//       their masters    the weights            the weights             the weights
//     16-bit weights     whole                  whole                   shard
//       their masters    whole copy             copy of the shard       copy of the shard
//
// A tied parameter is stored once, in its owner's block; each block that uses it has its own leaf
// and accumulator. Built block by block, so that with `shards_weights` at most one block is whole
// at a time. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/layers/replicate.h"
#include "trireme/models/block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/placement/stage.h"
#include "trireme/sync/buckets/bucket_layout.h"
#include "trireme/sync/distinct_memory.h"
#include "trireme/sync/gathers/unit_memory.h"
#include "trireme/sync/parameter_sync.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::parallel {

struct StoredParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  bool decay = true;
  models::Part part;  // what this rank holds of it; shape and count are of this part
  std::int64_t count = 0;
  at::ScalarType compute{};
  DType master = DType::F32;
  bool adopted = false;  // the tie's owner is in another pipeline stage
  int unit = -1;         // -1: its owner's block was not added yet
  std::size_t member = 0;
};

struct StoreOptions {
  /// fp64 | fp32 | bf16 | fp16; "own": any floating types, each its own master.
  std::string precision = "fp32";
  int owners = 1, owner = 0;
  bool shards_weights = false;
  /// The device of all tensors; the blocks' parameters and buffers are moved there.
  Device device = {};
  /// Keeps cold_memory() of a device in the host's pinned memory instead.
  bool cold_on_host = false;
  /// Whether a parameter's block is in this pipeline stage. Empty: every block is. A parameter tied
  /// to one of another stage is stored here under the owner's name.
  std::function<bool(const std::string& parameter)> here = {};
  /// Makes tensors equal to rank 0's on all ranks; collective. May be empty.
  std::function<void(const NamedTensors&)> replicate = {};
};

class ParameterStore : public UnitMemory {
 public:
  ParameterStore(const std::vector<models::Tie>& ties, StoreOptions options);

  /// Adds the next block of the list. ConfigError if a parameter has another precision, if tied
  /// parameters differ in shape, type or cut, or if two parameters share memory.
  void add_block(const Stage::Member& member);
  /// Call after the last block. ConfigError if a tie names no parameter.
  void complete();

  const std::vector<StoredParameter>& parameters() const noexcept { return parameters_; }
  const std::vector<std::vector<Accumulated>>& uses() const noexcept { return uses_; }
  /// The parameter of each use, by block.
  const std::vector<std::vector<std::uint32_t>>& parameter_of() const noexcept {
    return parameter_of_;
  }
  const std::vector<at::Tensor>& leaves() const noexcept { return leaves_; }  // flat over uses
  const std::vector<ParameterUse>& use_of_leaf() const noexcept { return use_of_leaf_; }
  /// Frozen weights, too.
  const NamedTensors& buffers() const noexcept { return buffers_; }
  bool is_frozen(const std::string& buffer) const { return frozen_.contains(buffer); }
  /// The units that a block's forward and backward need; the block's own unit first.
  const std::vector<std::uint32_t>& units_of_block(std::size_t block) const {
    return units_of_block_[block];
  }
  /// Says which parameter was replaced by another tensor, or got another storage: the store would
  /// train memory that nobody reads. Empty if there is none.
  std::string replaced(const std::vector<Stage::Member>& members) const;

  /// The slices that this rank updates, by ascending parameter; gradients are not set.
  std::vector<optim::OwnedSlice> slices() const;
  /// A parameter's whole weights in the compute type; they alias the store. Not while it is hidden.
  at::Tensor weights(std::uint32_t parameter) const;
  /// The elements of a parameter that this rank owns, flat, in the compute type; they alias the
  /// store. Of size 0 if it owns none.
  struct OwnWeights {
    std::int64_t begin = 0;
    at::Tensor weights;
  };
  OwnWeights own_weights(std::uint32_t parameter) const;
  /// The device of masters() that are this rank's shards.
  Device master_device() const noexcept {
    return options_.cold_on_host ? Device{} : options_.device;
  }
  /// The elements of slices()[i], flat; they alias the store.
  const at::Tensor& master(std::size_t slice) const { return parts_[slice].master; }
  /// Memory that forward and backward do not read directly: master weights that differ from the
  /// compute weights, and sharded weights. A storage may be moved until slices() is called.
  std::vector<at::Tensor> cold_memory() const;

  /// Rounds this rank's masters, which were written from outside, into the compute weights.
  void refresh();
  /// Whether every rank has every master weight.
  bool masters_are_whole() const noexcept;
  /// Master weights by name, whole or as this rank's shards. They alias the store.
  std::vector<NamedShard> masters() const;
  std::vector<optim::ParameterInfo> infos() const;

 private:
  std::uint32_t find_or_add(const std::string& owner, const std::string& name,
                            const models::NamedTensor& own);
  void place(std::size_t block, const std::vector<std::pair<std::uint32_t, at::Tensor>>& owned);
  void replicate(std::span<const std::uint32_t> parameters, std::size_t first_buffer) const;
  void make_masters();

  struct LocalShard {
    Piece piece;
    at::Tensor master;   // elements of the piece; aliases the weights where the types agree
    at::Tensor compute;  // the compute weights if the types differ
  };

  std::map<std::string, std::string> ties_;
  StoreOptions options_;
  DistinctMemory memory_;  // memory of the blocks as built
  std::map<std::string, std::uint32_t> index_;
  std::vector<StoredParameter> parameters_;  // in order of first use
  std::vector<std::vector<Accumulated>> uses_;
  std::vector<std::vector<std::uint32_t>> parameter_of_;
  std::vector<at::Tensor> leaves_;
  std::vector<std::uint32_t> parameter_of_leaf_;
  std::vector<ParameterUse> use_of_leaf_;
  NamedTensors buffers_;
  std::set<std::string> frozen_;  // names of buffers that are frozen weights
  std::vector<std::vector<std::uint32_t>> units_of_block_;
  std::vector<LocalShard> parts_;  // by ascending parameter
};

}  // namespace trireme::inline v0::parallel
