// Block and Blocks: a model is a list of blocks in topological order (docs/architecture.md).
//
// Each block names the values it reads and writes (default: it reads the previous block's output
// and writes its own name). Batch fields ("tokens", "targets") are values too. A value is a short
// list of tensors of any type; integers and bools carry no gradient. Blocks are given as factories,
// so that a rank builds only what it owns. Initial values are keyed by (seed, parameter name).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trireme::inline v0 {
namespace models {

using Value = std::vector<at::Tensor>;

/// The shard of a tensor that this rank holds, where ranks share a layer. The tensor is `whole`
/// long along `dim`, which is cut into `sections` equal sections (three for a fused QKV).
/// Tensor-parallel rank `index` of `of` holds the `index`-th slice of each section. Of `places`
/// expert-parallel ranks, only the one whose `place` is `holder` has that shard; on the others the
/// tensor has no element along `dim`.
struct Part {
  int dim = 0, index = 0, of = 1, sections = 1;
  std::int64_t whole = 0;
  int place = 0, holder = 0, places = 1;
  bool here() const noexcept { return place == holder; }
  /// Every rank has all of it.
  bool everywhere() const noexcept { return of == 1 && places == 1; }
  friend bool operator==(const Part&, const Part&) = default;
};

struct NamedTensor {
  std::string name;  // local to the block: "weight", "attention.qkv.weight"
  at::Tensor tensor;
  bool decay = true;  // weight decay applies (matrices yes; biases, norms no)
  Part part = {};
  bool frozen = false;  // in buffers(): a weight that never changes
};

/// One block as the runtime sees it. Not thread safe: one lane uses it at a time.
class Block {
 public:
  virtual ~Block() = default;
  /// `inputs` are the values it reads, in order. Under autograd; returns the value it writes.
  virtual Value forward(std::span<const Value> inputs) = 0;
  /// Leaves that require grad, in a fixed order. The runtime may re-point their storage (set_data).
  virtual std::vector<NamedTensor> parameters() = 0;
  virtual std::vector<NamedTensor> buffers() = 0;
  virtual void train(bool on) = 0;
};

using BlockFactory = std::function<std::shared_ptr<Block>()>;

struct BlockSpec {
  std::string name;
  BlockFactory make;
  std::vector<std::string> reads;  // empty: the previous block's output (the first: "tokens")
  std::string writes;              // empty: `name`
};
/// `alias` ("head.weight") is the same parameter as `owner` ("embed.weight").
struct Tie {
  std::string alias, owner;
};

/// The model: a list of specs. Copyable value.
class Blocks {
 public:
  Blocks& add_block(BlockSpec spec);
  Blocks& tie(std::string alias, std::string owner);
  const std::vector<BlockSpec>& specs() const noexcept { return specs_; }
  const std::vector<Tie>& ties() const noexcept { return ties_; }

  /// `factory` returns a torch module, its holder, a Block or a lambda. Include
  /// models/module_block.h, which has the adapters, where this is called.
  template <class Factory>
  Blocks& add(std::string name, Factory factory);
  /// The same for a block that reads the values `reads`, in this order: batch fields ("images") or
  /// the names of earlier blocks' outputs.
  template <class Factory>
  Blocks& add(std::string name, std::vector<std::string> reads, Factory factory);

 private:
  std::vector<BlockSpec> specs_;
  std::vector<Tie> ties_;
};

}  // namespace models
using models::Blocks;
}  // namespace trireme::inline v0
