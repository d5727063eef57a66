#include "trireme/strategy/option_check.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/mesh_division.h"
#include "trireme/base/transports.h"
#include "trireme/layers/shares.h"
#include "trireme/memory/offload_folder.h"
#include "trireme/memory/recompute.h"
#include "trireme/optim/optimizer.h"
#include "trireme/placement/pipeline_plan.h"
#include "trireme/plan/mixing.h"
#include "trireme/ps/worker/optimizer_text.h"
#include "trireme/strategy/loss_scale.h"
#include "trireme/strategy/shares.h"
#include "trireme/sync/compression/compressor.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/determinism.h"

namespace trireme::inline v0::parallel {
namespace {

std::string text(std::int64_t value) { return std::to_string(value); }

std::string text_of(const LossScaleOptions& scale) {
  return ", loss_scale " + number_text(scale.initial) +
         (scale.dynamic ? " for " + counted(scale.window, "step") : "");
}

std::string text_of(const LocalOptions& local) {
  return ", " + counted(local.steps, "local step") + " after " +
         std::to_string(local.post_local_after) + ", outer_rate " + number_text(local.outer_rate) +
         ", outer_momentum " + number_text(local.outer_momentum) + ", elastic " +
         number_text(local.elastic) + ", graph " + local.graph + " of " +
         std::to_string(local.graph_seed);
}

std::string text_of_layout(const StrategyOptions& options) {
  return ", pipeline " + text(options.pipeline) + " in chunks " + text(options.chunks) +
         (options.pipeline == 1 ? "" : " by schedule " + options.schedule) + ", context " +
         text(options.context) + ", expert " + text(options.expert) + ", tensor " +
         text(options.tensor) + ", sequence " + text(options.sequence) + ", shard " +
         text(options.shard);
}

class Check {
 public:
  Check(const StrategyOptions& options, std::string_view optimizer, const RankPlace& place)
      : options_(options), optimizer_(optimizer), place_(place) {}

  SyncPlan all() const {
    mesh();
    sequence();
    options_.pipeline == 1 ? no_pipeline() : pipeline();
    together("parallel.tensor", options_.tensor);
    together("parallel.context", options_.context);
    together("parallel.expert", options_.expert);
    optimizer();
    numbers();
    SyncPlan plan = sync();
    data(plan);
    if (plan.sharded()) sharded();
    if (options_.graphs) graphs(plan);
    set_shares(plan, options_.shares, place_.ranks, place_.rank);
    if (plan.local) local();
    if (plan.served) served();
    if (!plan.served && options_.server != ServerOptions{})
      refuse("options of servers cannot be combined with parallel.sync = \"" + options_.sync + "\"",
             "Leave them out, or use parallel.sync = \"server\".");
    compression();
    offload();
    return plan;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& advice) const {
    throw ConfigError(what, {.rank = place_.rank, .operation = "strategy", .advice = advice});
  }

  // Whether each rank has all parameters, for itself or for its servers.
  bool whole_on_each() const { return is_local(options_.sync) || is_served(options_.sync); }

  int layer_ranks() const { return options_.expert * options_.context * options_.tensor; }
  // How many ranks hold the same part of the model.
  int copies() const { return place_.ranks / (options_.pipeline * layer_ranks()); }

  void mesh() const {
    for (const auto& [name, size] : {std::pair{"pipeline", options_.pipeline},
                                     {"tensor", options_.tensor},
                                     {"context", options_.context},
                                     {"expert", options_.expert}})
      if (size < 1)
        refuse(std::string("parallel.") + name + " = " + text(size) + " is below 1",
               "Use 1 or more.");
    const MeshShape shape{.pipeline = options_.pipeline,
                          .context = options_.context,
                          .tensor = options_.tensor,
                          .expert = options_.expert};
    if (const auto refusal = refuse_mesh(shape, place_.ranks))
      refuse(refusal->what, refusal->advice);
  }

  void sequence() const {
    if (!options_.sequence) return;
    if (options_.context != 1)
      refuse("parallel.sequence = true cannot be combined with parallel.context = " +
                 text(options_.context),
             "Both cut sequences: use one of them.");
    if (options_.tensor == 1)
      refuse("parallel.sequence = true cannot be combined with parallel.tensor = 1",
             "Sequences are cut among tensor-parallel ranks: set parallel.tensor.");
  }

  void noise(const std::string& axis) const {
    if (options_.noise_scale)
      refuse("train.noise_scale cannot be combined with " + axis,
             "Leave it out: a rank sees a part of each gradient.");
  }

  void no_pipeline() const {
    if (options_.chunks != 0)
      refuse("parallel.chunks = " + text(options_.chunks) +
                 " cannot be combined with parallel.pipeline = 1",
             "Each rank has the whole model: leave it out, or set parallel.pipeline.");
  }

  void pipeline() const {
    if (options_.pipeline > 1 && whole_on_each())
      throw ConfigError(
          "parallel.sync = \"" + options_.sync +
              "\" cannot be combined with parallel.pipeline = " + text(options_.pipeline),
          {.operation = "pipeline", .advice = "Use " + one_of(level_names()) + "."});
    PipelinePlan(options_.schedule, options_.pipeline, options_.chunks);
    noise("parallel.pipeline = " + text(options_.pipeline));
  }

  // Checks an axis along which ranks run a layer together.
  void together(const std::string& axis, int size) const {
    if (size == 1) return;
    const std::string with = axis + " = " + text(size);
    if (whole_on_each())
      refuse("parallel.sync = \"" + options_.sync + "\" cannot be combined with " + with,
             "Use " + one_of(level_names()) + ".");
    noise(with);
    if (options_.compression != "none")
      refuse("comm.compression = \"" + options_.compression + "\" cannot be combined with " + with,
             "Parts of tensors are not compressed: use comm.compression = \"none\".");
  }

  // LAMB and Adafactor need sums over whole tensors, of which a rank has a part. Experts are whole.
  void optimizer() const {
    if (options_.tensor == 1 || !optim::sums_over_parameters(optimizer_)) return;
    refuse(std::string(optimizer_) +
               " cannot be combined with parallel.tensor: its steps depend on whole "
               "tensors, of which a rank has a part",
           "Use adamw or another optimizer without such sums, or parallel.tensor = 1.");
  }

  void numbers() const {
    if (const std::string wrong = wrong_number(options_); !wrong.empty())
      refuse(wrong, "Use a clip of 0 (off) or more, and buckets of 1 byte or more.");
    if (options_.lanes < 1)
      refuse("train.lanes = " + text(options_.lanes) + " is below 1", "Use 1 or more.");
    if (options_.loss_scale && options_.precision != "fp16")
      refuse("a loss scale cannot be combined with train.precision = \"" + options_.precision +
                 "\", whose gradients need none",
             "Leave it out, or use fp16.");
    if (options_.loss_scale) LossScale checked(*options_.loss_scale);  // throws, as do the next two
    tensor::compute_type(options_.precision);
    memory::parse_recompute(options_.recompute);
  }

  SyncPlan sync() const {
    const int size = copies(), layer = layer_ranks();
    const int here = place_.ranks_a_host;
    if (shards_in_groups(options_.sync) && options_.shard == 0 && here % layer != 0)
      refuse("parallel.sync = \"" + options_.sync + "\" shards within a host, and " + text(layer) +
                 " ranks that share a layer do not divide a host's ranks: " + division(here, layer),
             "Set parallel.shard.");
    return plan_sync(options_.sync, size, options_.shard, std::min(size, here / layer));
  }

  // parallel.data counts data x shard ranks, which include the expert axis.
  void data(const SyncPlan& plan) const {
    if (!shards_state(options_.sync) && options_.shard > 1)
      refuse("parallel.shard = " + text(options_.shard) +
                 " cannot be combined with parallel.sync = \"" + options_.sync + "\"",
             "Use " + one_of(level_names(&shards_state)) + ", or leave it out.");
    const int all = copies() * options_.expert;
    const int wanted = shards_in_groups(options_.sync) ? all / plan.owners : all;
    const int shard = std::max(options_.shard, 1);
    if (options_.data == 0 || options_.data == wanted || std::int64_t{options_.data} * shard == all)
      return;
    std::string product = "parallel.data = " + text(options_.data);
    std::int64_t ranks = options_.data;
    int factors = 1;
    for (const auto& [name, size] :
         {std::pair{"parallel.shard", shards_in_groups(options_.sync) ? plan.owners : 1},
          {"parallel.pipeline", options_.pipeline},
          {"parallel.context", options_.context},
          {"parallel.tensor", options_.tensor}}) {
      if (size == 1) continue;
      product += std::string(" x ") + name + " = " + text(size);
      ranks *= size;
      ++factors;
    }
    refuse(product + (factors > 1 ? " are " + text(ranks) + " ranks" : std::string()) +
               ", but the job has " + text(place_.ranks) + (place_.ranks == 1 ? " rank" : " ranks"),
           "Leave parallel.data at 0, or use --ranks " + text(ranks) + ".");
  }

  void sharded() const {
    if (options_.compression != "none")
      refuse("comm.compression = \"" + options_.compression +
                 "\" cannot be combined with parallel.sync = \"" + options_.sync +
                 "\": parts of gradients are not compressed",
             "Use plain, or comm.compression = \"none\".");
    if (!options_.overlap)
      refuse("parallel.overlap = false cannot be combined with parallel.sync = \"" + options_.sync +
                 "\", whose memory depends on it",
             "Leave it out, or use plain.");
  }

  void graphs(const SyncPlan& plan) const {
    const auto refuse_with = [&](const std::string& what, const std::string& advice) {
      refuse("train.graphs = true cannot be combined with " + what, advice);
    };
    if (layer_ranks() > 1 || options_.pipeline > 1)
      refuse_with("a model that is cut over ranks, which wait for each other in a pass",
                  "Leave it out, or let every rank have the whole model.");
    if (plan.shards_weights)
      refuse_with("parallel.sync = \"" + options_.sync + "\", which moves weights in a pass",
                  "Use " + one_of(level_names(&shards_weights, false)) + ", or leave it out.");
    if (options_.lanes > 1)
      refuse_with("train.lanes = " + text(options_.lanes), "Use train.lanes = 1, or leave it out.");
    if (!options_.offload_activations.empty())
      refuse_with("memory.offload_activations, which copies in streams of its own",
                  "Leave one of the two out.");
  }

  void local() const {
    const std::string sync = "parallel.sync = \"" + options_.sync + "\"";
    const std::string with = " cannot be combined with " + sync;
    const LocalOptions& own = options_.local;
    if (options_.compression != "none")
      refuse("comm.compression = \"" + options_.compression + "\"" + with,
             "Gradients stay on their ranks there: use comm.compression = \"none\".");
    if (options_.ema != 0 || options_.outliers.limit != 0 || options_.noise_scale)
      refuse("train.ema, train.skip_outliers or train.noise_scale" + with,
             "Ranks train copies of their own there: leave these out, or use another sync.");
    const auto number = [&](const char* key, double value, bool good, const char* advice) {
      if (!good)
        refuse(std::string(key) + " = " + number_text(value) + " is out of range for " + sync,
               advice);
    };
    number("parallel.local_steps", own.steps, own.steps >= 1, "Use 1 or more.");
    number("parallel.post_local_after", static_cast<double>(own.post_local_after),
           own.post_local_after >= 0, "Use 0 or more.");
    number("parallel.outer_rate", own.outer_rate, own.outer_rate > 0, "Use more than 0.");
    number("parallel.outer_momentum", own.outer_momentum,
           own.outer_momentum >= 0 && own.outer_momentum < 1, "Use 0 to below 1.");
    number("parallel.elastic", own.elastic, own.elastic > 0 && own.elastic <= 1,
           "Use more than 0, at most 1.");
    if (options_.sync == "gossip") plan::make_mixing(own.graph, copies(), own.graph_seed);
  }

  void served() const {
    const std::string with = " cannot be combined with parallel.sync = \"server\"";
    if (options_.compression != "none")
      refuse("comm.compression = \"" + options_.compression + "\"" + with,
             "Gradients go to the servers as they are: use comm.compression = \"none\".");
    if (!options_.offload.empty())
      refuse("memory.offload" + with, "The optimizer's state is on the servers: leave it out.");
    ps::require_elementwise(optimizer_);
    if (options_.server.alone() && options_.ema != 0)
      refuse("train.ema" + with + " and workers that train on their own",
             "No worker sees all steps: leave it out, or use server.staleness = 0.");
  }

  void compression() const {
    check_compression(options_.compression);
    if (options_.compression != "none" && parse_shares(options_.shares).automatic)
      refuse("batch.shares = \"auto\" cannot be combined with comm.compression = \"" +
                 options_.compression +
                 "\": what each rank compresses would depend on how fast the ranks are",
             "Use equal shares or weights such as 3:2:1, or comm.compression = \"none\".");
    if (options_.compression != "none" && options_.precision == "fp64")
      refuse("comm.compression = \"" + options_.compression +
                 "\" cannot be combined with train.precision = \"fp64\": gradients in fp64 are not "
                 "compressed",
             "Use comm.compression = \"none\", or another precision.");
  }

  void offload() const {
    const bool on_cpu = options_.device.kind == DeviceKind::Cpu;
    for (const auto& [key, place] :
         {std::pair{"memory.offload", options_.offload},
          {"memory.offload_activations", options_.offload_activations}}) {
      if (place.empty() || on_cpu != (place == memory::kOnHost)) continue;
      refuse(
          key + (" = \"" + place + "\" cannot be used ") + (on_cpu ? "on the CPU" : "on a device"),
          on_cpu ? "The host's memory holds it already: name a folder, or leave it out."
                 : "Use \"host\": the host's memory holds what would be on the device.");
    }
  }

  const StrategyOptions& options_;
  const std::string_view optimizer_;
  const RankPlace place_;
};

}  // namespace

SyncPlan check_options(const StrategyOptions& options, std::string_view optimizer,
                       const RankPlace& place) {
  return Check(options, optimizer, place).all();
}

void check_shape(const StrategyOptions& options, const ModelShape& shape, std::int64_t micro) {
  if (options.tensor > 1) {
    if (shape.shares.empty()) refuse_uncut_model(options.tensor, -1);
    for (const ModelShape::Share& share : shape.shares)
      check_tensor_share(share.what, share.count, options.tensor);
    if (shape.vocabulary > 0) check_vocabulary(shape.vocabulary, options.tensor);
  }
  if (options.sequence) {
    check_sequence_share(shape.positions, options.tensor);
    if (shape.experts > 0) refuse_experts_with_sequence();
  }
  if (options.context > 1) {
    if (shape.positions == 0)
      throw ConfigError(
          "parallel.context = " + text(options.context) + ": this model reads no sequences",
          {.operation = "strategy",
           .advice = "Use parallel.context = 1; GPT and BERT read sequences."});
    check_context_share(shape.positions, options.context);
  }
  if (options.expert > 1) {
    if (shape.experts == 0) refuse_model_without_experts(options.expert, -1);
    check_expert_share(shape.experts, options.expert);
    check_expert_sequences(micro, options.expert);
  }
}

void refuse_uncut_model(int tensor_ranks, int rank) {
  throw ConfigError(
      "parallel.tensor = " + text(tensor_ranks) + ": no layer of this model can be cut",
      {.rank = rank,
       .operation = "strategy",
       .advice = "Its blocks would take their layers from a LayerFactory, as those of GPT, BERT "
                 "and MLP do; or use parallel.tensor = 1."});
}

void refuse_model_without_experts(int expert_ranks, int rank) {
  throw ConfigError(
      "parallel.expert = " + text(expert_ranks) + ": this model has no mixture of experts",
      {.rank = rank,
       .operation = "strategy",
       .advice = "Set model.experts to a multiple of " + text(expert_ranks) +
                 ", or use parallel.expert = 1."});
}

std::string processor_of(const StrategyContext& env) {
  return env.reproducible ? env.processor + "; " + tensor::describe_threads() : "";
}

std::string settings_of(const StrategyOptions& options, const std::string& optimizer) {
  return common_settings(options) + text_of_layout(options) + ", precision " + options.precision +
         (options.precision == "fp16" ? text_of(options.loss_scale.value_or(LossScaleOptions{}))
                                      : "") +
         (is_local(options.sync) ? text_of(options.local) : "") + ", seed " +
         std::to_string(options.seed) + ", outliers " + number_text(options.outliers.limit) +
         " of " + std::to_string(options.outliers.window) + ", noise_scale " +
         std::to_string(options.noise_scale) + ", ema " + number_text(options.ema) + ", " +
         optimizer;
}

}  // namespace trireme::inline v0::parallel
