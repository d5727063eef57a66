// Stage: a range of a model's blocks, built and run forward on this rank; autograd runs it back.
//
// The values that cross its ends were written before the range and are read in it or after it, so a
// value that a later stage reads passes through every stage between. Batch fields are read where
// they are needed. Blocks keep the numbers and names that they have in the whole list, so random
// numbers and names do not depend on the cut.
//
// Foreign modules draw from LibTorch's default generator. It is seeded per (seed, block name)
// before a block is built and per (seed, step, micro-batch, block) before it runs, so that the
// numbers do not depend on the rank; tensor::dropout() in a block draws from a stream of the same
// key. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/memory/activation_store.h"
#include "trireme/memory/recompute.h"
#include "trireme/models/block.h"
#include "trireme/tensor/batch.h"
#include "trireme/tensor/random.h"

namespace trireme::inline v0::parallel {

/// Blocks [first, end) of a model's list; `end` beyond the last means the last.
struct BlockRange {
  std::size_t first = 0, end = std::numeric_limits<std::size_t>::max();
};

/// Values by name.
using Values = std::map<std::string, models::Value>;

/// The values that cross a cut before block `cut`: written before it, and read at or after it
/// before they are overwritten. In the order of the blocks that write them.
std::vector<std::string> values_across(const models::Blocks& model, std::size_t cut);

class Stage {
 public:
  struct Member {
    std::string name;
    std::shared_ptr<models::Block> block;
    std::vector<std::string> reads;
    std::string writes;
  };
  /// Enter is called before a block's forward pass, with its index in members(). The Leave that it
  /// returns is called after the pass, with the block's value.
  using Leave = std::function<void(const models::Value&)>;
  using Enter = std::function<Leave(std::size_t block)>;

  /// Builds the range's blocks; `built` is called after each. ConfigError for an empty range.
  Stage(const models::Blocks& model, std::uint64_t seed,
        const std::function<void(const Member&)>& built = {}, BlockRange range = {});
  const std::vector<Member>& members() const noexcept { return members_; }
  /// The values that it takes and gives; the last stage gives the last block's value.
  const std::vector<std::string>& takes() const noexcept { return takes_; }
  const std::vector<std::string>& gives() const noexcept { return gives_; }

  /// For a stage with the whole list: the last block's value. ConfigError if a block reads what
  /// neither an earlier block nor the batch gives. Values are dropped after their last reader.
  models::Value forward(const MicroBatch& micro, std::int64_t step, const Enter& enter = {});
  /// The values that it gives, from those that it takes.
  Values forward(Values values, const MicroBatch& micro, std::int64_t step,
                 const Enter& enter = {});
  void train(bool on);
  /// From the next forward() on.
  void recompute(memory::RecomputePolicy policy) noexcept { recompute_ = std::move(policy); }
  /// From the next forward() on, what blocks save for backward goes to `store`, except the last
  /// block's.
  void offload(std::shared_ptr<memory::ActivationStore> store) { activations_ = std::move(store); }
  const std::shared_ptr<memory::ActivationStore>& activations() const noexcept {
    return activations_;
  }
  /// Off: forward() does not seed the default generator, which all lanes' threads share.
  void seeds_generator(bool on) noexcept { seeds_generator_ = on; }
  /// The first block seen to draw from the default generator in forward(); empty: none.
  const std::string& drawing_block() const noexcept { return drawing_block_; }

 private:
  void find_last_uses();
  bool ends_list(std::size_t member) const { return first_ + member + 1 == blocks_; }
  models::Value run(std::size_t member, const std::vector<models::Value>& inputs,
                    const tensor::StreamKey& key);

  std::vector<Member> members_;
  memory::RecomputePolicy recompute_;
  std::shared_ptr<memory::ActivationStore> activations_;
  std::size_t first_, blocks_;  // number of the first member in the whole list, and its length
  std::vector<std::string> takes_, gives_;
  std::vector<std::vector<std::string>> dead_after_;  // values that are not read after member i
  std::uint64_t seed_;
  bool seeds_generator_ = true;
  std::string drawing_block_;
};

}  // namespace trireme::inline v0::parallel
