// Strategy::Impl: the state of a Strategy. Its methods are in strategy.cc, strategy_step.cc,
// strategy_helpers.cc, strategy_evaluation.cc and strategy_state.cc. Internal to strategy*.cc.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/decentralised/local_sync.h"
#include "trireme/models/layer_factory.h"
#include "trireme/pipeline/pipeline_runner.h"
#include "trireme/placement/grid.h"
#include "trireme/placement/pipeline_plan.h"
#include "trireme/strategy/gradient_noise.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/agreement.h"
#include "trireme/sync/autograd_hooks.h"
#include "trireme/sync/batch_statistics.h"
#include "trireme/sync/lanes.h"
#include "trireme/sync/model_parts.h"
#include "trireme/sync/not_finite.h"
#include "trireme/sync/offload.h"
#include "trireme/sync/scalar_tree.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/sync/weight_average.h"

namespace trireme::inline v0 {

struct Strategy::Impl {
  Impl(const parallel::StrategyContext& own_seat, const models::Blocks& own_model,
       StrategyOptions own_options, std::unique_ptr<optim::Optimizer> own_optimizer);

  parallel::ModelParts build(const models::Blocks& blocks);
  void offload_masters();
  parallel::ModelParts::Options part_options(const models::Blocks& blocks);
  std::vector<std::size_t> agreed_cut(const models::Blocks& blocks);
  std::vector<std::size_t> measured_cut(const models::Blocks& blocks);
  parallel::StoreOptions store_options(comm::Communicator& data);
  std::unique_ptr<parallel::StepSync> make_sync();
  std::unique_ptr<parallel::StepSync> of_cut_layers(std::unique_ptr<parallel::StepSync> own);
  std::unique_ptr<parallel::StepSync> make_pipeline_sync();
  std::unique_ptr<parallel::ParameterSync> make_stage_sync(parallel::ModelPart& part,
                                                           const parallel::ShardGroups& own,
                                                           parallel::UnitGather* gather = nullptr,
                                                           std::uint32_t number = 0);
  void make_hooks();
  parallel::Replica replica();
  /// Whether this step is local: its gradient is complete before the ranks have agreed on anything.
  bool steps_alone() const { return local != nullptr && local->local(); }
  /// While the result lives, all ranks have the weights of the model that they train together.
  std::shared_ptr<void> common_weights() { return local != nullptr ? local->show() : nullptr; }
  observe::TracedScope traced(const char* what) const {
    return {env.trace.get(), *env.world->waiter(), what};
  }
  Work enter_barrier();
  /// Whether the entry barrier comes before anything else of the step: a rank then waits for others
  /// in the middle of a pass, perhaps before its first bucket.
  bool enters_barrier_first() const { return grid.pipeline != nullptr || grid.layer != nullptr; }
  bool has_whole_weights() const {
    return !plan.shards_weights && grid.pipeline == nullptr && grid.layer == nullptr;
  }
  /// Which micro-batches each rank of the world computes.
  kernel::Assignment places() const {
    kernel::Assignment places = plan.assignment;
    places.together = grid.micro_batch_ranks();
    return places;
  }
  /// For a rank that shares micro-batches: its positions and sequences; and the loss of all these
  /// ranks as the value of its own. If not `even`, expert-parallel ranks cannot divide the
  /// sequences, and each has all of them.
  MicroBatch local_shard(const MicroBatch& micro, bool even) const;
  at::Tensor of_all_ranks(at::Tensor loss, bool even) const;
  /// Whether the number of expert-parallel ranks divides its sequences.
  bool even(const MicroBatch& micro) const;
  /// While the result lives, this thread's blocks and losses use `layers`.
  std::unique_ptr<models::LayersScope> use_layers() const;
  /// How long this rank has been blocked on communication so far, in all its groups.
  Duration time_waited() const;

  // strategy_step.cc
  StepResult run(const Batch& batch, const Loss& loss);
  /// Forgets the step, which was applied on no rank; training may go on.
  void drop();
  /// The block uses of a step, equal on all ranks of a group even if a rank's last round is empty:
  /// for each round of micro-batches, all blocks forward and then back.
  std::vector<parallel::Use> order_of(std::size_t rounds, bool backward) const;
  std::size_t rounds_of(std::uint32_t micro_batches) const;
  /// Micro-batches in the schedule of a pipeline's rank for a step of `micro_batches`.
  std::uint32_t passes_of(std::uint32_t micro_batches) const;
  double compute(const MicroBatch& micro, const Loss& loss, parallel::LocalVote& local_vote);
  void compute_all(const Batch& batch, const Loss& loss, parallel::ScalarTree& losses,
                   parallel::LocalVote& local_vote);
  std::string wrong_share() const;
  bool start_lanes(const Batch& batch, std::span<const std::uint32_t> leaves, std::size_t begin);
  std::string why_one_lane() const;
  void compute_in_lanes(std::span<const MicroBatch> micros, std::uint32_t first, const Loss& loss,
                        parallel::ScalarTree& losses, parallel::LocalVote& local_vote);
  void apply(StepResult& result);
  void require_equal_gradients();
  double clipping(double norm) const;
  void update(double scale);
  /// False: all ranks skip the step.
  bool judge(StepResult& result);
  /// Enters a refusal of this rank's sync into its vote.
  void refuse(const parallel::Refusal& refusal, parallel::LocalVote& local_vote) const;
  /// After an overflow in fp16: skips the step and lowers the loss scale.
  void back_off(const parallel::Verdict& verdict, StepResult& result);
  /// Skips the step; rethrows what the budget of steps that are not finite does not cover.
  void leave_out(const StepRefused& refused, StepResult& result);
  void settle_own(parallel::LocalVote& local_vote);
  void apply_own(StepResult& result, double own_squares, double all_squares);

  // strategy_helpers.cc: averages, outliers, gradient noise
  void make_helpers();
  /// Takes a gradient of the current micro-batch, from a hook or a lane.
  void take(std::size_t leaf, at::Tensor gradient);
  /// `count`: its items, on which the loss scale depends.
  void begin_micro(std::uint32_t index, std::int64_t count);
  /// The initial gradient of backward for a loss over `count` items.
  double loss_gradient(std::int64_t count) const {
    return loss_scale ? loss_scale->loss_gradient(count) : 1;
  }
  /// `count` 0: it failed, and the step will be refused.
  void end_micro(std::int64_t count);
  void use_average(bool on);
  void save_helpers(nlohmann::json& into) const;
  /// A helper whose state the checkpoint lacks keeps its initial state.
  void restore_helpers(const nlohmann::json& saved);

  // strategy_evaluation.cc
  std::vector<double> evaluate(const std::vector<Batch>& batches, const std::vector<Loss>& sums);
  std::vector<double> sums_of(const Batch& given, const std::vector<Loss>& sums,
                              std::exception_ptr& error);
  void keep(const std::exception_ptr& thrown, std::exception_ptr& error);
  /// After a failure in the middle of a collective call: ends the other ranks' waits.
  void give_up(const std::exception_ptr& error);
  void conclude(std::vector<Work> works, const std::exception_ptr& error,
                const std::string& operation);
  void each_output(const Batch& batch, const parallel::PipelineRunner::Output& output);
  models::Value forward_alone(const MicroBatch& micro);
  std::vector<parallel::Use> evaluation_order(const std::vector<Batch>& batches) const;
  models::Value infer(const MicroBatch& micro);

  // strategy_state.cc
  std::string weights_hash();
  std::vector<NamedShard> content() const;
  at::Tensor gathered_master(const parallel::ModelPart& part, std::uint32_t parameter,
                             const std::vector<NamedShard>& masters) const;
  std::string pipeline_hash() const;
  at::Tensor joined(const std::string& name, const at::Tensor& own) const;
  models::Part part_named(const std::string& parameter) const;
  std::vector<NamedShard> of_whole(std::vector<NamedShard> own) const;
  std::vector<NamedShard> state();
  std::string metadata() const;
  void restored(const std::string& metadata);
  [[noreturn]] void refuse_metadata() const;

  // Without a pipeline there is one stage, with the whole model.
  parallel::ModelPart& whole() const { return parts.whole(); }
  parallel::Stage& stage() const { return whole().blocks; }
  const parallel::ParameterStore& store() const { return whole().store; }

  parallel::StrategyContext env;
  parallel::SyncPlan plan;
  parallel::PipelinePlan pipeline;
  parallel::Grid grid;
  std::shared_ptr<const models::LayerFactory> layers;  // null: whole ones
  StrategyOptions options;
  std::string stages_note;
  std::optional<parallel::MappedState> mapped;  // outlives what lies in it
  parallel::ModelParts parts;
  const models::Blocks model;  // what lanes are built from
  std::unique_ptr<parallel::Lanes> lanes;
  // Batch statistics of each lane's copy of the model; made with the lanes.
  std::map<const parallel::Stage*, std::unique_ptr<parallel::BatchStatistics>> lane_statistics;
  std::string lanes_note;        // why there are none, though requested
  bool has_run = false;          // a micro-batch has been computed
  std::uint32_t microbatch = 0;  // the one that is computed now
  std::int64_t step = 0;
  std::uint32_t total = 0;
  int stop_signal = 0;           // of the last step's vote
  bool failed = false;           // a step has thrown; the other ranks know
  bool equal_gradients = false;  // ranks that compute together were compared
  double learning_rate = 0;
  parallel::ShardGroups groups;          // of the first stage; empty if nothing is sharded
  parallel::LocalSync* local = nullptr;  // `sync`, if ranks train separate copies
  // Inside `sync`, or `sync` itself: `gradients` without a pipeline, `stages` with one.
  parallel::ParameterSync* gradients = nullptr;
  parallel::PipelineSync* stages = nullptr;
  std::unique_ptr<parallel::StepSync> sync;          // making it sets the three pointers above
  std::unique_ptr<parallel::PipelineRunner> runner;  // with a pipeline
  std::optional<parallel::BlockPins> pins;           // without a pipeline, if ranks hold shards
  std::unique_ptr<optim::Optimizer> optimizer;
  parallel::NotFiniteBudget not_finite;
  std::optional<parallel::LossScale> loss_scale;  // of fp16
  std::optional<parallel::OutlierFilter> outliers;
  std::optional<parallel::GradientNoise> noise;
  std::optional<parallel::WeightAverage> average;
  bool averaged = false;                           // weights and averages are swapped
  std::unique_ptr<parallel::GradientHooks> hooks;  // without a pipeline
  int exceptions = std::uncaught_exceptions();
};

}  // namespace trireme::inline v0
