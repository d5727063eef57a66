// CutSync: the sync of a model that is cut among ranks (tensor or expert parallelism). Another
// StepSync handles this rank's parts. CutSync answers what concerns the whole gradient, over all
// ranks that hold parts of it; an element that several ranks hold counts once.
//
// Not thread safe.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/sync/model_parts.h"
#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

class CutSync final : public StepSync {
 public:
  /// `group`: the ranks that hold parts, ordered by expert coordinate, then by tensor coordinate
  /// (0 ... tensor_ranks - 1). `group` and `parts` must outlive this object.
  CutSync(std::unique_ptr<StepSync> own, comm::Communicator& group, int tensor_ranks,
          const ModelParts& parts);

  void begin(std::uint32_t total, std::span<const Use> order) override {
    own_->begin(total, order);
  }
  Work finish() override { return own_->finish(); }
  std::optional<Refusal> refusal() const override { return own_->refusal(); }
  void settle() override { own_->settle(); }
  /// In (parameter, rank in `group`, chunk) order.
  std::vector<double> chunk_squares() override;
  std::int64_t first_overflow() override;
  void drop() override { own_->drop(); }
  std::span<optim::OwnedSlice> owned() override { return own_->owned(); }
  Work publish() override { return own_->publish(); }
  std::size_t gradient_bytes() const override { return own_->gradient_bytes(); }

 private:
  std::unique_ptr<StepSync> own_;
  comm::Communicator& group_;
  const int tensor_ranks_;
  const ModelParts& parts_;
};

}  // namespace trireme::inline v0::parallel
