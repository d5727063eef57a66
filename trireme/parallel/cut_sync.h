// CutSync: the sync of a model of which ranks have parts: of each layer (tensor parallel), or some
// experts. Each rank's parts go the way of another StepSync; what is asked of the whole gradient is
// answered over the ranks that have its parts. What several ranks have counts once.
//
// Not thread safe.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/parameter_sync.h"
#include "trireme/parallel/model_parts.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class CutSync final : public StepSync {
 public:
  /// `group`: the ranks that have the parts, by expert and then tensor coordinate, of which there
  /// are `tensor_ranks`; outlives it, as `parts` do.
  CutSync(std::unique_ptr<StepSync> own, comm::Communicator& group, int tensor_ranks,
          const ModelParts& parts);

  void begin(std::uint32_t total, std::span<const Use> order) override {
    own_->begin(total, order);
  }
  Work finish() override { return own_->finish(); }
  std::optional<Refusal> refusal() const override { return own_->refusal(); }
  void settle() override { own_->settle(); }
  /// In (parameter, rank of the part, chunk) order.
  std::vector<double> chunk_squares() override;
  std::int64_t first_overflow() override;
  void drop() override { own_->drop(); }
  std::span<optim::OwnedSlice> owned() override { return own_->owned(); }
  Work publish() override { return own_->publish(); }
  std::size_t gradient_bytes() const override { return own_->gradient_bytes(); }

 private:
  std::size_t num_chunks(const ModelTensor& parameter, int rank) const;

  std::unique_ptr<StepSync> own_;
  comm::Communicator& group_;
  const int tensor_ranks_;
  const ModelParts& parts_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
