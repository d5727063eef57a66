// Divisibility checks for ranks that share a layer, used by the cut layers and by the plan of a job
// (strategy/option_check.h), so that both give the same message. Pure; throws ConfigError.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::inline v0::parallel {

/// `count` columns, rows or heads among tensor-parallel ranks. `what`: "4 attention heads".
void check_tensor_share(const std::string& what, std::int64_t count, int ranks);
/// Rows of a vocabulary among tensor-parallel ranks: at least one for each.
void check_vocabulary(std::int64_t rows, int ranks);
/// Positions of a sequence among tensor-parallel ranks (parallel.sequence).
void check_sequence_share(std::int64_t positions, int ranks);
/// Positions of a sequence among context-parallel ranks, two chunks each. Returns a chunk's length.
std::int64_t check_context_share(std::int64_t positions, int ranks);
/// Experts of a mixture among expert-parallel ranks.
void check_expert_share(std::int64_t experts, int ranks);
/// Sequences of a micro-batch among expert-parallel ranks.
void check_expert_sequences(std::int64_t sequences, int ranks);
/// Refuses a mixture of experts with parallel.sequence.
[[noreturn]] void refuse_experts_with_sequence();

}  // namespace trireme::inline v0::parallel
