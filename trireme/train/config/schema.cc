#include "trireme/train/config/schema.h"

#include <string>
#include <vector>

#include "trireme/base/joined.h"
#include "trireme/base/transports.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/plan/mixing.h"
#include "trireme/plan/named_strategies.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/train/config/elastic_keys.h"
#include "trireme/train/config/optimizer_keys.h"

namespace trireme::inline v0::train {
namespace {

constexpr double kMost = 1e15;

config::Value whole(std::int64_t value) { return value; }
config::Value text(const char* value) { return std::string(value); }

// Includes algorithms that the program has registered.
std::vector<std::string> names_of_algorithms() {
  std::vector<std::string> names = {"auto", "direct"};
  for (const auto* entry : comm::algorithms_of(comm::OpKind::AllReduce))
    names.push_back(entry->name);
  names.insert(names.end(), {"mpi-native", "nccl-native"});
  return names;
}

// model.*, data.* and train.loss: the common keys, this model's, which are part of the identity,
// and this data's. Data and loss are part of it unless they are defaults (parts_identity).
void add_model_keys(config::Schema& schema, const ModelFamily& family, const DataFamily& data) {
  schema.add(identity_key({"model.name", default_model(), "Which model.", 0, 0, model_names()}));
  for (const config::Key& key : family.keys) schema.add(identity_key(key));
  schema.add({"data.name", family.data, "Which data; the model's own where nothing is said.", 0, 0,
              data_names()});
  schema.add({"data.path", text(""),
              "What to train on. Text: a file or a folder, any bytes; empty: the C++ library "
              "headers of this machine's compiler."});
  for (const config::Key& key : data.keys) schema.add(key);
  schema.add({"train.loss", family.loss,
              "What is minimized: tokens, cross-entropy; classes, the same, and validation tells "
              "the share of right answers; binary, that of a yes or no; or a loss of the program's "
              "own.",
              0, 0, loss_names()});
}

void add_batch_keys(config::Schema& schema) {
  schema.add(identity_key({"batch.global", whole(16),
                           "Samples (sequences, images) of one step, over all ranks.", 1, 1e9}));
  schema.add(identity_key(
      {"batch.micro", whole(4),
       "Samples of one micro-batch; divides batch.global. Part of what decides the bits.", 1,
       1e9}));
  schema.add({"batch.shares", text("equal"),
              "Micro-batches of each rank, under " +
                  joined(parallel::level_names(&parallel::goes_in_rounds, false), {}, " and ") +
                  ": equal; auto, so that a slower rank gets fewer, measured in the first steps; "
                  "or weights such as 3:2:1. Changes no bit."});
}

// Keys of the average of the weights, early stopping, skipped steps and the noise scale.
void add_helper_keys(config::Schema& schema) {
  schema.add(identity_key(
      {"train.ema", 0.0,
       "Decay of an average of the weights, which validation, eval and generate then see; "
       "0 = none.",
       0, 0.999999999}));
  schema.add({"train.patience", whole(0),
              "Validations in a row without an improvement after which training ends; 0 = never.",
              0, 1e9});
  schema.add({"train.min_improvement", 0.0,
              "The least fall of the validation loss that train.patience takes for one.", 0, 1e9});
  schema.add(identity_key(
      {"train.skip_outliers", 0.0,
       "Leaves out a step whose loss or gradient norm is more standard deviations than this "
       "above the mean of the steps before it; 0 = none.",
       0, 1e9}));
  schema.add(identity_key({"train.outlier_window", whole(128),
                           "Steps over which train.skip_outliers takes its mean.", 4, 1e6}));
  schema.add({"train.skip_not_finite", whole(10),
              "Steps that are left out on all ranks because a loss or a gradient holds a NaN or an "
              "infinity, before one ends the run (exit code 21).",
              0, 1e9});
  schema.add({"train.noise_scale", false,
              "Measures the gradient noise scale: the batch, in tokens, beyond which more help "
              "little."});
}

// Part of the identity only with fp16 (half_identity).
void add_loss_scale_keys(config::Schema& schema) {
  schema.add({.name = "train.loss_scale",
              .fallback = text("dynamic"),
              .meaning =
                  "Under train.precision = \"fp16\": by how much the loss is multiplied before "
                  "backward, a power of two that stays, or dynamic: halved at an overflow, which "
                  "leaves the step out on all ranks, doubled after train.loss_scale_window steps "
                  "without.",
              .numbers = true});
  schema.add({"train.initial_loss_scale", 65536.0,
              "First value of a dynamic loss scale, a power of two.", 1, 4294967296.0});
  schema.add({"train.loss_scale_window", whole(2000),
              "Steps in a row without an overflow after which a dynamic loss scale doubles.", 1,
              kMost});
}

void add_length_keys(config::Schema& schema) {
  schema.add({"train.steps", whole(1000), "Optimizer steps.", 1, kMost});
  schema.add({"train.max_time", text(""),
              "How long a start may take, such as 11h50m (units d, h, m, s): the step in which the "
              "time ends is the last, a checkpoint is written, the exit code is 143, and `train "
              "--resume RUN` goes on. Empty: no limit."});
}

// Keys of a rank's device, kernels and lanes.
void add_device_keys(config::Schema& schema) {
  schema.add(
      {"train.device", text("auto"),
       "Where tensors live: cpu, or what this LibTorch computes on besides (cuda, xpu, hpu, ...); "
       "auto takes that if there is one for each rank. Ranks take them by their local rank."});
  schema.add({"train.ranks_per_device", whole(1), "Ranks that share one device.", 1, 64});
  schema.add(identity_key(
      {"train.kernel_threads", whole(1),
       "Threads of one kernel, honoured exactly; part of what decides the bits.", 1, 1024}));
  schema.add({"train.kernel_table", text(""),
              "A file of `trireme doctor --tune`: which library computes which product. Empty: the "
              "built-in table. What it says is part of what decides the bits."});
  schema.add(
      {"train.lanes", whole(1),
       "Micro-batches that a rank computes at once, each with kernel_threads threads; changes "
       "no bit.",
       1, 1024});
  schema.add(
      {"train.graphs", false,
       "On a device: record the passes of a micro-batch once and replay them by one call (CUDA "
       "graphs), for models so small that launching their kernels takes longer than running "
       "them. Changes no bit."});
  schema.add({"train.reproducible", true,
              "Add gradients in one order whatever the layout, and refuse ranks whose identity "
              "differs: the same bits everywhere. False: as they come."});
}

void add_train_keys(config::Schema& schema) {
  add_length_keys(schema);
  schema.add(
      identity_key({"train.seed", whole(1), "Seed of initial values and data order.", 0, kMost}));
  schema.add(identity_key({"train.learning_rate", 1e-3, "Peak learning rate.", 0, 1e3}));
  add_schedule_keys(schema);
  schema.add(identity_key({"train.weight_decay", 0.1, "Weight decay, of matrices only.", 0, 1e3}));
  schema.add(identity_key({"train.beta1", 0.9, "Decay of the optimizer's mean.", 0, 1}));
  schema.add(
      identity_key({"train.beta2", 0.99, "Decay of the mean square; of lion's momentum.", 0, 1}));
  schema.add(identity_key({"train.epsilon", 1e-8, "Epsilon of its divisor.", 0, 1}));
  schema.add(identity_key(
      {"train.clip", 1.0, "Largest global norm of the gradient; 0 = no clipping.", 0, 1e9}));
  schema.add(identity_key(
      {"train.precision",
       text("fp32"),
       "bf16 and fp16 compute in 16 bits with fp32 master weights; fp16, which is meant for "
       "GPUs, with a loss scale.",
       0,
       0,
       {"fp32", "bf16", "fp16", "fp64"}}));
  add_loss_scale_keys(schema);
  schema.add(identity_key(
      {"train.products",
       text("fp32"),
       "Matrix products under train.precision = \"fp32\": bf16 (on CPUs) rounds their operands to "
       "bf16 and sums in fp32, twice as fast where the processor multiplies bf16; tf32 (on GPUs) "
       "rounds them to tf32; everything else stays fp32.",
       0,
       0,
       {"fp32", "bf16", "tf32"}}));
  add_helper_keys(schema);
  schema.add({"train.validate_every", whole(100),
              "Steps between validations; 0 = only before and after.", 0, kMost});
  schema.add({"train.validate_sequences", whole(64),
              "Samples of a validation, spread evenly over those held out.", 1, kMost});
  schema.add(
      {"train.sample_bytes", whole(400), "Text generated at the end, in bytes; 0 = none.", 0, 1e6});
  add_device_keys(schema);
}

void add_local_keys(config::Schema& schema) {
  schema.add({"parallel.local_steps", whole(8),
              "Steps that a rank makes on its own between two exchanges (local_sgd, diloco, easgd, "
              "gossip).",
              1, 1e9});
  schema.add(
      {"parallel.post_local_after", whole(0),
       "First steps that are synchronous, as under plain (local_sgd, diloco, easgd, gossip).", 0,
       kMost});
  schema.add({"parallel.outer_rate", 0.7, "Learning rate of the outer SGD (diloco).", 1e-9, 1e3});
  schema.add({"parallel.outer_momentum", 0.9, "Nesterov momentum of the outer SGD (diloco).", 0,
              0.999999});
  schema.add({"parallel.elastic", 0.9,
              "Share of its distance to the ranks' mean that the centre moves in an exchange; a "
              "rank moves this over the number of ranks towards the centre (easgd).",
              1e-9, 1});
  schema.add({"parallel.graph", text("one_peer"),
              "Who averages with whom under gossip (`trireme show gossip`).", 0, 0,
              plan::mixing_graphs()});
}

void add_server_keys(config::Schema& schema) {
  schema.add({"server.count", whole(1),
              "Servers that `trireme train` starts beside the ranks (parallel.sync = server).", 1,
              65'536});
  schema.add({"server.replicas", whole(1),
              "Servers that have a copy of each shard. 1: only its own; with 2 or more the job "
              "survives the death of a server, and loses no acknowledged push.",
              1, 65'536});
  schema.add(
      {"server.staleness", whole(0),
       "How far ranks may be apart. 0: synchronous; s: a rank is at most s steps ahead of the "
       "slowest; -1: no bound. If not 0, each rank trains on batches of batch.global / ranks.",
       -1, 1e9});
  schema.add({"server.backup", whole(0),
              "Backup workers: with staleness 0, a step goes on without this many of the ranks' "
              "gradients, whichever come last. Ranks then train on batches of their own.",
              0, 65'535});
  schema.add(
      {"server.compensation", 0.0,
       "Lambda of delay compensation (DC-ASGD), with a staleness other than 0; 0: off. Not with "
       "server.prediction.",
       0, 1e6});
  schema.add(
      {"server.prediction", true,
       "With a staleness other than 0: a rank takes its gradient at the weights that momentum "
       "will have made by the time it is applied, not at those that it was sent."});
}

void add_memory_keys(config::Schema& schema) {
  schema.add(
      {"memory.offload", text(""),
       "A folder: optimizer state, bf16's master weights, and a rank's part of the weights under " +
           joined(parallel::level_names(&parallel::shards_weights), {}, " and ") +
           " lie in a mapped file there; on a device \"host\": optimizer state lies in the "
           "host's memory. Empty: in memory."});
  schema.add(
      {"memory.offload_activations", text(""),
       "A folder: what blocks keep from forward to backward lies in a mapped file there, but "
       "for two blocks at a time; on a device \"host\": in the host's memory. Empty: in memory. "
       "Changes no bit."});
  schema.add({.name = "memory.limit",
              .fallback = text("0"),
              .meaning =
                  "Bytes that a rank may take (8GB, 8e9): a job that is predicted to take more is "
                  "refused, and `train --fit` finds a layout that takes less. 0 = what the machine "
                  "and its control group have left, for all ranks of a host together; none = a job "
                  "is started whatever it is predicted to take.",
              .numbers = true});
  schema.add(
      {"memory.recompute", text("none"),
       "Activations computed again in backward instead of kept: none, selective (attention's "
       "probabilities), full, every-K (every K-th block), a list with one of the first three for "
       "each block (full*3,none*2), auto (what fits into memory.limit at the least time). Changes "
       "no bit."});
}

void add_checkpoint_keys(config::Schema& schema) {
  schema.add({"checkpoint.every", whole(500), "Steps between checkpoints; 0 = only at the end.", 0,
              kMost});
  schema.add({"checkpoint.path", std::string(),
              "Where checkpoints are kept: a folder, file:///FOLDER or s3://BUCKET/PREFIX; empty: "
              "RUN/checkpoint."});
  schema.add({"checkpoint.keep", whole(3), "Newest checkpoints kept.", 1, 1e6});
  schema.add({"checkpoint.keep_hours", 0.0,
              "Also keeps the checkpoints of so many hours before the newest one; 0 = none.", 0,
              1e6});
  schema.add({"checkpoint.keep_best", whole(0),
              "Also keeps so many checkpoints with the least validation loss; 0 = none.", 0, 1e6});
  schema.add({"checkpoint.patience", 600.0,
              "Seconds for which the training goes on while its checkpoints cannot be written (a "
              "full disk, a storage that is away); then it ends with exit code 170.",
              0, 1e7});
}

void add_comm_keys(config::Schema& schema) {
  schema.add(
      {"comm.transport", text("auto"),
       "How bytes move between ranks. nccl: the memory of one GPU a rank, which auto takes on "
       "GPUs; with the others, data of GPUs goes through the host's memory.",
       0, 0, transport_choices({"sim", "nccl"})});
  schema.add({"comm.link", text("25us,1GB/s"),
              "Latency and rate of every rank's link under comm.transport = \"sim\"."});
  schema.add({"comm.sockets", whole(1), "TCP connections between two ranks.", 1, 64});
  schema.add({"comm.rate", 0.0,
              "The most bytes a second that a TCP connection sends; 0 = all it can.", 0, 1e15});
  schema.add({"comm.interface", text(""),
              "By which ranks on other hosts reach this one: an interface or a subnet."});
  schema.add({"comm.algorithm", text("auto"), "The all-reduce; changes no bit.", 0, 0,
              names_of_algorithms()});
  schema.add({.name = "comm.compression",
              .fallback = text("none"),
              .meaning =
                  "Gradients on the wire: none, auto, bf16, f16, topk:R, randomk:R, "
                  "powersgd:RANK[,STEPS], onebit. Any but none changes bits with the layout.",
              .identity = true});
  schema.add(
      {"comm.bucket_bytes", whole(4 << 20), "Gradient bytes reduced at a time.", 1024, 1e12});
}

void add_parallel_keys(config::Schema& schema) {
  schema.add({"parallel.strategy", text(""),
              "The layout by its name in other systems, Mirrored or FSDP or GPipe (`trireme show "
              "strategies`), which sets other keys of parallel. Empty: those keys alone."});
  schema.add(
      {"parallel.sync", text("plain"),
       "What each rank keeps: " + parallel::levels_help() +
           ". A copy on every rank that trains by itself and changes bits with the number of "
           "ranks: local_sgd, averaged now and then; diloco, moved by an outer optimizer; easgd, "
           "pulled to a centre; gossip, averaged with neighbours. server: weights and optimizer "
           "state are on parameter servers (server.*).",
       0, 0, parallel::sync_names()});
  schema.add(
      {"parallel.overlap", true,
       "Reduce gradients while backward still runs; false (plain): after it, to see what that "
       "is worth. Changes no bit."});
  add_local_keys(schema);
  add_server_keys(schema);
  schema.add({"parallel.data", whole(0), "Data-parallel ranks; 0 = what is left (all).", 0, 1e6});
  schema.add({"parallel.shard", whole(0),
              "Ranks that share one copy under hybrid; 0 = those of a host.", 0, 1e6});
  schema.add({"parallel.pipeline", whole(1),
              "Ranks that hold one copy of the model, each some of its blocks.", 1, 9999});
  schema.add(
      {"parallel.schedule", text("1f1b"),
       "Order of a pipeline's passes, a name (`trireme show schedule`) or a file. Changes no "
       "bit."});
  schema.add({"parallel.chunks", whole(0),
              "Pipeline stages that a rank holds; 0 = as few as the schedule can have.", 0, 9999});
  schema.add({"parallel.tensor", whole(1),
              "Ranks that share the tensors of each layer (GPT, BERT). Weights agree with one "
              "process's within a tolerance.",
              1, 9999});
  schema.add({"parallel.sequence", false,
              "With parallel.tensor: what lies between the cut layers is cut along the sequence, "
              "which takes less memory."});
  schema.add({"parallel.context", whole(1),
              "Ranks that share the positions of every sequence, attention as a ring among them "
              "(GPT, BERT); twice as many divide its length. Weights agree with one process's "
              "within a tolerance.",
              1, 9999});
  schema.add(
      {"parallel.expert", whole(1),
       "Ranks that share the experts of each mixture (model.experts), each with its own of a "
       "micro-batch's sequences; it divides all three, and data x shard. Weights agree with "
       "one process's within a tolerance.",
       1, 9999});
  add_memory_keys(schema);
  add_comm_keys(schema);
  schema.add({"timeout", 30.0, "Seconds of silence after which a peer is lost.", 0.1, 1e6});
  schema.add({"timeout.user_code", 1800.0,
              "Seconds that a live peer may spend in its own code while others wait.", 0.1, 1e7});
  add_elastic_keys(schema);
  add_checkpoint_keys(schema);
}

// Finds the value of model.name or data.name before there is a schema to read it with. An unknown
// name is refused later.
std::string name_for(const std::string& key, const std::string& fallback, const std::string& path,
                     const config::Environment& environment,
                     const std::vector<std::string>& assignments) {
  std::string name = fallback;
  if (!path.empty()) name = config::text_in_file(path, key).value_or(name);
  if (const char* text = environment(config::environment_name(key).c_str())) name = text;
  for (const std::string& assignment : assignments)
    if (assignment.starts_with(key + "=")) name = assignment.substr(key.size() + 1);
  if (name.size() >= 2 && name.front() == '"' && name.back() == '"')
    name = name.substr(1, name.size() - 2);
  return name;
}

// Sets the keys that parallel.strategy means.
void expand_strategy(config::Config& config) {
  const std::string name = config.text("parallel.strategy");
  if (name.empty()) return;
  plan::expand(
      plan::find_strategy(name),
      {.value = [&](const std::string& key) { return config.value(key); },
       .source =
           [&](const std::string& key) {
             if (config.schema().find(key) == nullptr) return std::string();
             const std::string& source = config.source(key);
             return source == "default" ? std::string() : source;
           },
       .set = [&](const std::string& key,
                  const config::Value& value) { config.assign(key, value, "parallel.strategy"); }});
}

}  // namespace

config::Schema training_schema(const ModelFamily& family) {
  return training_schema(family, *find_data(family.data));
}

config::Schema training_schema(const ModelFamily& family, const DataFamily& data) {
  config::Schema schema;
  add_model_keys(schema, family, data);
  add_batch_keys(schema);
  add_train_keys(schema);
  add_optimizer_keys(schema);
  add_parallel_keys(schema);
  return schema;
}

std::string training_help() {
  const auto help_of = [](const std::vector<config::Key>& keys) {
    config::Schema own;
    for (const config::Key& key : keys) own.add(key);
    return own.help();
  };
  const ModelFamily& standard = *find_model(default_model());
  std::string help = training_schema(standard).help();
  for (const std::string& name : model_names()) {
    if (name == standard.name) continue;
    const ModelFamily& family = *find_model(name);
    help += "\nmodel.name = \"" + name +
            "\" has, instead of the others of model, with data.name = \"" + family.data +
            "\" and train.loss = \"" + family.loss + "\":\n" + help_of(family.keys);
  }
  for (const std::string& name : data_names())
    if (name != standard.data)
      help += "\ndata.name = \"" + name + "\" has, instead of the others of data:\n" +
              help_of(find_data(name)->keys);
  return help;
}

config::Config read_config(const std::string& path, const config::Environment& environment,
                           const std::vector<std::string>& assignments) {
  const auto named = [&](const char* key, const std::string& fallback) {
    return name_for(key, fallback, path, environment, assignments);
  };
  const ModelFamily* model = find_model(named("model.name", default_model()));
  if (model == nullptr) model = find_model(default_model());
  const DataFamily* data = find_data(named("data.name", model->data));
  if (data == nullptr) data = find_data(model->data);
  config::Config config(training_schema(*model, *data));
  if (!path.empty()) config.read_file(path);
  config.read_environment(environment);
  for (const std::string& assignment : assignments) config.set(assignment);
  expand_strategy(config);
  return config;
}

}  // namespace trireme::inline v0::train
