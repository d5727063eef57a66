// ParameterStore: a Stage's parameters as a rank keeps them: whole, or the parts that it owns.
//
// Every block's parameters are one Unit (data/ownership.h), and the blocks' own leaves point into
// it. Weights in the compute type are whole on every rank, or (`shards_weights`, ZeRO-3) only the
// own interval stays and the whole comes and goes by show() and hide(). Master weights (fp32, or
// fp64) are the compute weights where the types agree; else they are the own intervals' alone.
//
//                    plain (one owner)      ZeRO-1, 2                ZeRO-3, hybrid
//     fp32 weights   whole = master         whole, own part=master   own part = master
//     16-bit weights whole; whole master    whole; own master        own part; own master
//
// A tied parameter is stored once, in its owner's block, and has in each block that uses it a leaf
// and an accumulator of its own. Built block by block, so that with `shards_weights` no more than
// one block is whole at a time. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/parallel/data/bucket_layout.h"
#include "trireme/parallel/data/ownership.h"
#include "trireme/parallel/data/parameter_sync.h"
#include "trireme/parallel/distinct_memory.h"
#include "trireme/parallel/pipeline/stage.h"
#include "trireme/parallel/replicate.h"
#include "trireme/tensor/state.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

struct StoredParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  bool decay = true;
  models::Part part;  // where ranks share layers; shape and count are the part's
  std::int64_t count = 0;
  at::ScalarType compute{};
  DType master = DType::F32;
  bool adopted = false;  // its owner is in another pipeline stage
  int unit = -1;         // -1: its owner's block was not seen yet
  std::size_t member = 0;
};

struct StoreOptions {
  /// fp64 | fp32 | bf16 | fp16; "own": any floating types, each its own master.
  std::string precision = "fp32";
  int owners = 1, owner = 0;
  bool shards_weights = false;
  /// Of a pipeline stage: whether the block of the parameter so named is in it. Empty: all are. A
  /// parameter that is tied to one elsewhere is kept here under the owner's name.
  std::function<bool(const std::string& parameter)> here = {};
  /// Makes tensors equal to rank 0's on all ranks; collective. May be empty.
  std::function<void(const NamedTensors&)> replicate = {};
};

class ParameterStore {
 public:
  ParameterStore(const std::vector<models::Tie>& ties, StoreOptions options);

  /// The next block of the list has been built. ConfigError where a tied parameter's shapes differ,
  /// a parameter is not of the precision, or two share memory.
  void add_block(const Stage::Member& member);
  /// After the last one. ConfigError where a tie names no parameter.
  void complete();

  const std::vector<StoredParameter>& parameters() const noexcept { return parameters_; }
  const std::vector<std::vector<Accumulated>>& uses() const noexcept { return uses_; }
  /// Per block and use: the parameter.
  const std::vector<std::vector<std::uint32_t>>& parameter_of() const noexcept {
    return parameter_of_;
  }
  const std::vector<at::Tensor>& leaves() const noexcept { return leaves_; }  // flat over uses
  const std::vector<ParameterUse>& use_of_leaf() const noexcept { return use_of_leaf_; }
  const NamedTensors& buffers() const noexcept { return buffers_; }
  const Ownership& ownership() const noexcept { return ownership_; }
  int owner() const noexcept { return options_.owner; }
  bool shards_weights() const noexcept { return options_.shards_weights; }
  /// The units that a block's forward and backward need; its own first.
  const std::vector<std::uint32_t>& units_of_block(std::size_t block) const {
    return units_of_block_[block];
  }
  std::int64_t num_elements() const;
  /// What is not as it was built: a parameter that was replaced by another tensor, or whose memory
  /// or type was, since the store would train what nobody reads. Empty: nothing.
  std::string replaced(const std::vector<Stage::Member>& members) const;

  /// What this rank updates, by ascending parameter; gradients are not set.
  std::vector<optim::OwnedSlice> slices() const;
  /// This rank's interval of a unit, in the compute type.
  std::span<std::byte> own(std::uint32_t unit) const;
  /// A parameter's whole weights in the compute type; they alias the store. Not where it is hidden.
  at::Tensor weights(std::uint32_t parameter) const { return view(parameter); }
  /// Of a parameter, the elements that this rank owns, flat, in the compute type; they alias the
  /// store. None: of size 0.
  struct OwnWeights {
    std::int64_t begin = 0;
    at::Tensor weights;
  };
  OwnWeights own_weights(std::uint32_t parameter) const;
  /// The elements of slices()[i], flat; they alias the store.
  const at::Tensor& master(std::size_t slice) const { return parts_[slice].master; }
  /// The unit's whole memory; empty where it is hidden.
  std::span<std::byte> whole(std::uint32_t unit) const;
  /// The leaves of a unit point into `whole` (64-byte aligned, the unit's bytes), or nowhere.
  void show(std::uint32_t unit, void* whole);
  void hide(std::uint32_t unit) { show(unit, nullptr); }

  /// Memory that forward and backward do not read themselves: master weights that are not the
  /// compute weights; where weights are sharded, this rank's parts, which are gathered from. A
  /// storage may move as long as nobody has asked for slices().
  std::vector<at::Tensor> cold_memory() const;

  /// compute = the rounded master of the own parts: after the masters were written from outside.
  void refresh();
  /// Every rank has every master weight.
  bool masters_are_whole() const noexcept;
  /// Master weights by name: whole, or the parts that this rank owns. They alias the store.
  std::vector<NamedShard> masters() const;
  std::vector<optim::ParameterInfo> infos() const;

 private:
  bool is_here(const std::string& parameter) const {
    return !options_.here || options_.here(parameter);
  }
  std::uint32_t find_or_add(const std::string& owner, const std::string& name,
                            const models::NamedTensor& own);
  void take_memory(const std::string& name, const at::Tensor& leaf);
  void place(std::size_t block, const std::vector<std::pair<std::uint32_t, at::Tensor>>& owned);
  void replicate_unit(std::uint32_t unit, std::size_t first_buffer);
  void keep_own_part(std::uint32_t unit);
  void point(std::size_t leaf);
  at::Tensor view(std::uint32_t parameter) const;
  NamedTensors named(std::uint32_t unit) const;
  void make_masters();

  struct OwnPart {
    Piece piece;
    at::Tensor master;   // elements of the piece; aliases the weights where the types agree
    at::Tensor compute;  // the weights where they do not
  };

  std::map<std::string, std::string> ties_;
  StoreOptions options_;
  DistinctMemory memory_;                          // of the blocks as they were built
  std::map<const void*, std::string> leaf_names_;  // by TensorImpl
  std::map<std::string, std::uint32_t> index_;
  std::vector<StoredParameter> parameters_;  // in order of first use
  std::vector<std::vector<Accumulated>> uses_;
  std::vector<std::vector<std::uint32_t>> parameter_of_;
  std::vector<at::Tensor> leaves_;
  std::vector<std::uint32_t> parameter_of_leaf_;
  std::vector<ParameterUse> use_of_leaf_;
  NamedTensors buffers_;
  Ownership ownership_;
  std::vector<at::Tensor> units_;  // bytes; their storage comes and goes when sharded
  std::vector<at::Tensor> own_;    // bytes of the own interval; sharded weights alone
  std::vector<std::vector<std::uint32_t>> units_of_block_;
  std::vector<OwnPart> parts_;  // by ascending parameter
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
