// Shared by tests of Strategy: a small GPT, its micro-batches, and the values of parallel.sync.
#pragma once

#include <ATen/Functions.h>

#include "trireme/kernel/assignment.h"
#include "trireme/models/models.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/tensor/random.h"

namespace trireme::strategy_test {

inline constexpr std::int64_t kBlock = 8, kVocab = 20, kRows = 2;

inline models::Blocks tiny_gpt(const std::string& precision = "fp32") {
  return models::make_gpt({.layers = 1,
                           .heads = 2,
                           .width = 16,
                           .block = kBlock,
                           .vocab = kVocab,
                           .precision = precision});
}

// Micro-batch `index` of step `step`: a function of nothing else.
inline MicroBatch micro_batch(std::int64_t step, std::uint32_t index) {
  at::Tensor noise = at::empty({kRows, kBlock + 1}, at::kFloat);
  tensor::fill_uniform(noise, 7, std::to_string(step) + "/" + std::to_string(index), 0, 4);
  const at::Tensor tokens = noise.to(at::kLong).clamp_max(3);
  return {.index = index,
          .first_sample = kRows * index,
          .count = kRows * kBlock,
          .fields = {{"tokens", tokens.narrow(1, 0, kBlock).contiguous()},
                     {"targets", tokens.narrow(1, 1, kBlock).contiguous()}}};
}

inline Batch batch_of(std::int64_t step, std::uint32_t total, int rank,
                      const kernel::Assignment& assignment) {
  Batch batch{.total = total, .global_count = total * kRows * kBlock, .step = step};
  for (const std::uint32_t i : leaves_of(assignment, total, rank))
    batch.micro.push_back(micro_batch(step, i));
  return batch;
}
inline Batch batch_of(std::int64_t step, std::uint32_t total, int rank, int size) {
  return batch_of(step, total, rank, kernel::contiguous(size));
}

// parallel.sync, and hybrid's parallel.shard.
struct Sync {
  std::string name = "plain";
  int shard = 0;
  bool overlap = true;
};

inline std::vector<Sync> sharded_syncs() {
  std::vector<Sync> all;
  for (const std::string& name : parallel::level_names(&parallel::shards_state))
    all.push_back({name, parallel::shards_in_groups(name) ? 2 : 0});
  return all;
}

}  // namespace trireme::strategy_test
