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
// Under ZeRO ranks own parts of a sum, cut differently in each stage: then a tied parameter's sums
// are gathered over the stage's ranks before they go on.
//
// Not thread safe.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/parameter_sync.h"
#include "trireme/parallel/model_parts.h"
#include "trireme/parallel/pipeline_plan.h"
#include "trireme/parallel/unit_gather.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class PipelineSync final : public StepSync {
 public:
  /// `syncs[i]` is that of parts.parts()[i]; `gather` is what brings the weights of all of them,
  /// null where they are whole. `pipeline` and `parts` outlive it.
  PipelineSync(comm::Communicator& pipeline, const PipelinePlan& plan, const ModelParts& parts,
               std::unique_ptr<UnitGather> gather,
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
  // A tied parameter in one of this rank's stages.
  struct Held {
    std::uint32_t parameter = 0;  // of the model
    std::size_t part = 0;
    std::uint32_t stored = 0;  // its number there
    optim::OwnedSlice slice;   // what this rank owns of it; of size 0: nothing
  };
  const Held* held(std::uint32_t parameter, int stage) const;
  const Held& first_held(std::uint32_t parameter) const;
  int stage_of(const Held& held) const;
  int rank_of(int stage) const;
  Buffer whole_sum(const Held& held, std::vector<std::byte>& memory) const;
  void find_held(const std::vector<std::size_t>& first_part);
  void take_uses_before(int stage);
  void give_uses_after(int stage);
  void spread_sums();

  comm::Communicator& pipeline_;
  const PipelinePlan& plan_;
  const ModelParts& parts_;
  std::unique_ptr<UnitGather> gather_;
  std::vector<std::unique_ptr<ParameterSync>> syncs_;
  std::vector<optim::OwnedSlice> slices_;  // by ascending parameter of the model
  std::vector<std::uint32_t> tied_;        // parameters in several stages
  std::vector<Held> held_;                 // of those, by ascending stage
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
