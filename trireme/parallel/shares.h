// What ranks that share a layer must divide, and what is said where they do not. One sentence for
// the layers that are cut and for whoever plans a job (option_check.h). Pure; throws ConfigError.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {
inline namespace v0 {
namespace parallel {

/// `count` columns, rows or attention heads among tensor-parallel ranks; `what`: "4 attention
/// heads".
void check_tensor_share(const std::string& what, std::int64_t count, int ranks);
/// A vocabulary's rows among them: each rank has one at least.
void check_vocabulary(std::int64_t rows, int ranks);
/// Positions of a sequence among tensor-parallel ranks (parallel.sequence).
void check_sequence_share(std::int64_t positions, int ranks);
/// Positions of a sequence among context-parallel ranks: twice as many chunks. Returns a chunk.
std::int64_t check_context_share(std::int64_t positions, int ranks);
/// Experts of a mixture among expert-parallel ranks.
void check_expert_share(std::int64_t experts, int ranks);
/// Sequences of a micro-batch among them.
void check_expert_sequences(std::int64_t sequences, int ranks);
/// A mixture of experts with parallel.sequence.
[[noreturn]] void refuse_experts_with_sequence();

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
