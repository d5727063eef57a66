// PipelineSync: the StepSync of a rank in a pipeline. Each of its stages has a ParameterSync over
// the ranks that hold the same stage; values of the whole model go along the pipeline.
//
//     tied parameters   settle(): the sum of the uses goes from stage to stage in block order, then
//                       back to all ranks that hold the parameter
//     norm, overflow    combined over the pipeline; in the norm a tied parameter counts once, at
//                       its first use
//
// Under ZeRO, ranks own shards of a sum, cut differently in each stage. A tied parameter's sums are
// then gathered over the stage's ranks before they go on. Not thread safe.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/placement/pipeline_plan.h"
#include "trireme/sync/model_parts.h"
#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

class PipelineSync final : public StepSync {
 public:
  /// `syncs[i]` belongs to parts.parts()[i]. `pipeline`, `plan` and `parts` outlive it.
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
  // A tied parameter in one of this rank's stages.
  struct TiedParameter {
    std::uint32_t parameter = 0;  // its number in the model
    const ModelPart* part = nullptr;
    std::uint32_t stored = 0;  // its number in the part's store
    optim::OwnedSlice slice;   // what this rank owns of it; of size 0 if nothing
  };
  const TiedParameter* held(std::uint32_t parameter, int stage) const;
  const TiedParameter* first_held(std::uint32_t parameter) const;  // null: this rank has none
  int rank_of(int stage) const;
  std::uint32_t tag(int from, std::uint32_t parameter) const;
  Buffer room_for(const TiedParameter& held) const;
  Buffer whole_sum(const TiedParameter& held) const;
  void find_held();
  void take_uses_before(int stage);
  void give_uses_after(int stage, std::vector<Work>& given);
  void spread_sums();

  comm::Communicator& pipeline_;
  const PipelinePlan& plan_;
  const ModelParts& parts_;
  std::vector<std::unique_ptr<ParameterSync>> syncs_;
  std::vector<optim::OwnedSlice> slices_;  // by ascending parameter of the model
  std::vector<std::uint32_t> tied_;        // parameters in several stages
  std::vector<TiedParameter> held_;        // this rank's, by ascending stage
};

}  // namespace trireme::inline v0::parallel
