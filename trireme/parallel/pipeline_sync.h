// PipelineSync: the gradients of a rank's pipeline stages as one step's: each stage has a
// ParameterSync of its own over the ranks that hold the same stage, and what concerns the whole
// model goes along the pipeline.
//
//     tied parameters   settle(): the sum of the uses goes from stage to stage in block order, and
//                       back to all that hold the parameter
//     norm, overflow    every rank gathers what the stages know; a tied parameter counts once,
//     where
//                       it is used first
//
// Not thread safe.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/parameter_sync.h"
#include "trireme/parallel/model_parts.h"
#include "trireme/parallel/pipeline_plan.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class PipelineSync final : public StepSync {
 public:
  /// `syncs[i]` is that of parts.parts()[i]. `pipeline` and `parts` outlive it.
  PipelineSync(comm::Communicator& pipeline, const PipelinePlan& plan, const ModelParts& parts,
               std::vector<std::unique_ptr<ParameterSync>> syncs);

  ParameterSync& of_part(std::size_t part) { return *syncs_[part]; }

  void begin(std::uint32_t total, std::span<const Use> order) override;
  Work finish() override;
  std::optional<Refusal> refusal() const override;
  void settle() override;
  std::vector<double> chunk_squares() override;
  std::int64_t first_overflow() override;
  void drop() override;
  std::span<optim::OwnedSlice> owned() override { return slices_; }
  Work publish() override;
  std::size_t gradient_bytes() const override;

 private:
  // A tied parameter's place in one of this rank's stages.
  struct Held {
    std::size_t part = 0;
    optim::OwnedSlice slice;
  };
  const Held* held(std::uint32_t parameter, int stage) const;
  int rank_of(int stage) const;
  Buffer gradient_of(const Held& held) const;
  void take_uses_before(int stage);
  void give_uses_after(int stage);
  void spread_sums();

  comm::Communicator& pipeline_;
  const PipelinePlan& plan_;
  const ModelParts& parts_;
  std::vector<std::unique_ptr<ParameterSync>> syncs_;
  std::vector<optim::OwnedSlice> slices_;             // by ascending parameter of the model
  std::vector<std::uint32_t> tied_;                   // parameters in several stages
  std::vector<std::pair<std::uint32_t, Held>> held_;  // of those
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
