#include "trireme/layers/shares.h"

#include "trireme/base/refuse.h"

namespace trireme::inline v0::parallel {
namespace {

[[noreturn]] void refuse_share(const std::string& what, const char* operation, const char* advice) {
  refuse(operation, what, advice);
}

// "6 / 4 leaves 2"
std::string remainder(std::int64_t count, std::int64_t parts, const char* name = "") {
  return std::to_string(count) + " / " + std::to_string(parts) + name + " leaves " +
         std::to_string(count % parts);
}

}  // namespace

void check_tensor_share(const std::string& what, std::int64_t count, int ranks) {
  if (count % ranks == 0) return;
  refuse_share(
      what + " on " + std::to_string(ranks) + " tensor-parallel ranks: " + remainder(count, ranks),
      "tensor parallel", "Change parallel.tensor or the model so that it divides.");
}

void check_vocabulary(std::int64_t rows, int ranks) {
  if (rows >= ranks) return;
  refuse_share("a vocabulary of " + std::to_string(rows) + " on " + std::to_string(ranks) +
                   " tensor-parallel ranks",
               "tensor parallel", "Use fewer ranks.");
}

void check_sequence_share(std::int64_t positions, int ranks) {
  if (positions % ranks == 0) return;
  refuse_share(
      "sequences of " + std::to_string(positions) + " positions on " + std::to_string(ranks) +
          " tensor-parallel ranks leave " + std::to_string(positions % ranks),
      "sequence parallel", "Use a sequence length that they divide, or no sequence parallelism.");
}

std::int64_t check_context_share(std::int64_t positions, int ranks) {
  const std::int64_t chunks = 2 * std::int64_t{ranks};
  if (positions % chunks == 0) return positions / chunks;
  refuse_share("sequences of " + std::to_string(positions) + " positions on " +
                   std::to_string(ranks) +
                   " context-parallel ranks: " + remainder(positions, chunks, " chunks"),
               "context parallel", "Use a sequence length that twice the ranks divide.");
}

void check_expert_share(std::int64_t experts, int ranks) {
  if (experts % ranks == 0) return;
  refuse_share(std::to_string(experts) + " experts on " + std::to_string(ranks) +
                   " expert-parallel ranks: " + remainder(experts, ranks),
               "expert parallel", "Change parallel.expert or model.experts so that it divides.");
}

void check_expert_sequences(std::int64_t sequences, int ranks) {
  if (sequences % ranks == 0) return;
  refuse_share("micro-batches of " + std::to_string(sequences) + " sequences on " +
                   std::to_string(ranks) + " expert-parallel ranks leave " +
                   std::to_string(sequences % ranks),
               "expert parallel", "Set batch.micro to a multiple of parallel.expert.");
}

void refuse_experts_with_sequence() {
  refuse_share("a mixture of experts among ranks that cut sequences", "tensor parallel",
               "Use tensor parallelism without sequence parallelism.");
}

}  // namespace trireme::inline v0::parallel
