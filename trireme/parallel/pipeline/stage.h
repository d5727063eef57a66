// Stage: a range of a model's block list, built on this rank, run forward; autograd runs it back.
//
// This release has one stage, the whole list, so its only edges are batch fields and the last
// block's value. Foreign modules draw from LibTorch's default generator: it is seeded per (seed,
// block name) before a block is built and per (seed, step, micro-batch, block) before it runs, so
// that what they draw does not depend on the rank; tensor::dropout() in a block draws from a stream
// of the same key. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/memory/recompute.h"
#include "trireme/models/block.h"
#include "trireme/tensor/batch.h"
#include "trireme/tensor/random.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class Stage {
 public:
  struct Member {
    std::string name;
    std::shared_ptr<models::Block> block;
    std::vector<std::string> reads;
    std::string writes;
  };
  /// Around a block's forward pass: called before it, with the block's number; what it returns is
  /// called after it, with the block's value.
  using Leave = std::function<void(const models::Value&)>;
  using Enter = std::function<Leave(std::size_t block)>;

  /// Builds every block; `built` is called after each. ConfigError for two blocks of one name.
  Stage(const models::Blocks& model, std::uint64_t seed,
        const std::function<void(const Member&)>& built = {});
  const std::vector<Member>& members() const noexcept { return members_; }

  /// The last block's value. ConfigError where a block reads what neither a block before it nor the
  /// batch gives. Values are dropped after their last reader.
  models::Value forward(const MicroBatch& micro, std::int64_t step, const Enter& enter = {});
  void train(bool on);
  /// From the next forward() on.
  void recompute(const memory::RecomputePolicy& policy) noexcept { recompute_ = policy; }
  /// Off: forward() leaves the default generator alone (lanes: one generator is every thread's).
  void seeds_generator(bool on) noexcept { seeds_generator_ = on; }
  /// The first block seen to draw from the default generator in forward(); empty: none.
  const std::string& drawing_block() const noexcept { return drawing_block_; }

 private:
  models::Value run(std::size_t block, const std::vector<models::Value>& inputs,
                    const tensor::StreamKey& key);

  std::vector<Member> members_;
  memory::RecomputePolicy recompute_;
  std::vector<std::vector<std::string>> dead_after_;  // values nobody reads after block i
  std::uint64_t seed_;
  bool seeds_generator_ = true;
  std::string drawing_block_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
