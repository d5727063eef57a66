#include "trireme/train/job_keys.h"

#include <string>
#include <vector>

#include "trireme/comm/registry.h"
#include "trireme/optim/schedule.h"
#include "trireme/plan/mixing.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

constexpr double kMost = 1e15;

config::Value whole(std::int64_t value) { return value; }
config::Value text(const char* value) { return std::string(value); }

// Those that the program has registered itself as well.
std::vector<std::string> names_of_algorithms() {
  std::vector<std::string> names = {"auto", "direct"};
  for (const auto* entry : comm::algorithms_of(comm::OpKind::AllReduce)) {
    names.push_back(entry->name);
  }
  return names;
}

void add_data_keys(config::Schema& schema) {
  schema.add({"data.path", text(""),
              "Text to train on: a file or a folder, any bytes. Empty: the C++ library headers of "
              "this machine's compiler."});
  schema.add({"data.tokenizer", text("bytes"), "How text becomes tokens.", 0, 0, {"bytes"}, true});
  schema.add(
      {"batch.global", whole(16), "Sequences of one step, over all ranks.", 1, 1e9, {}, true});
  schema.add({"batch.micro",
              whole(4),
              "Sequences of one micro-batch; divides batch.global. Part of what decides the bits.",
              1,
              1e9,
              {},
              true});
}

void add_optimizer_keys(config::Schema& schema) {
  schema.add(
      {"optimizer.name",
       text("adamw"),
       "Which optimizer; train.learning_rate, weight_decay, beta1, beta2 and epsilon are its "
       "numbers where it has them.",
       0,
       0,
       {"adamw", "sgd", "lamb", "adafactor", "lion"},
       true});
  schema.add({"optimizer.momentum", 0.9, "Of sgd.", 0, 1, {}, true});
  schema.add({"optimizer.dampening", 0.0, "Of sgd's momentum.", 0, 1, {}, true});
  schema.add({"optimizer.nesterov", false, "Of sgd's momentum.", 0, 1, {}, true});
  schema.add({"optimizer.beta2_decay",
              -0.8,
              "Of adafactor: step t's squares weigh t^this.",
              -1e3,
              0,
              {},
              true});
  schema.add({"optimizer.update_clip",
              1.0,
              "Of adafactor: largest root mean square of an update, before the rate.",
              1e-9,
              1e9,
              {},
              true});
  schema.add({"optimizer.smallest_scale",
              1e-3,
              "Of adafactor: steps are relative to a parameter's root mean square, or to this.",
              0,
              1e9,
              {},
              true});
  schema.add({.name = "optimizer.groups",
              .fallback = text(""),
              .meaning =
                  "Numbers of parameters by name, the first match counts: [[optimizer.groups]] "
                  "match = \"*.bias\", weight_decay = 0, learning_rate = 0.5 (a factor); or "
                  "in one line \"match=*.bias weight_decay=0; match=...\".",
              .identity = true,
              .tables = true});
}

void add_schedule_keys(config::Schema& schema) {
  schema.add({"train.schedule", text("cosine"), "The learning rate after the warm-up.", 0, 0,
              optim::decay_names(), true});
  schema.add({"train.final_learning_rate",
              1e-4,
              "Learning rate at the end (linear, cosine, wsd, polynomial, one_cycle).",
              0,
              1e3,
              {},
              true});
  schema.add({"train.warmup", whole(100), "Steps of linear warm-up.", 0, kMost, {}, true});
  schema.add({"train.decay_steps",
              whole(0),
              "Of wsd: the last steps, in which the rate falls; 0 = a fifth of train.steps.",
              0,
              kMost,
              {},
              true});
  schema.add({"train.power", 1.0, "Of polynomial.", 0, 1e3, {}, true});
  schema.add({"train.rise", 0.3, "Of one_cycle: share of the steps that rise.", 0, 1, {}, true});
  schema.add({"train.start_divisor",
              25.0,
              "Of one_cycle: it starts at the peak over this.",
              1,
              1e9,
              {},
              true});
  schema.add(
      {"train.step_every", whole(0), "Of step: steps between two falls.", 0, kMost, {}, true});
  schema.add(
      {"train.step_factor", 0.1, "Of step: what the rate is multiplied by.", 0, 1, {}, true});
  schema.add({"train.base_batch",
              whole(0),
              "Linear-scaling rule: the learning rates are for this batch and grow with "
              "batch.global; 0 = as they are.",
              0,
              1e9,
              {},
              true});
}

// What watches a training, or is kept beside it.
void add_helper_keys(config::Schema& schema) {
  schema.add({"train.ema",
              0.0,
              "Decay of an average of the weights, which validation, eval and generate then see; "
              "0 = none.",
              0,
              0.999999999,
              {},
              true});
  schema.add({"train.patience", whole(0),
              "Validations in a row without an improvement after which training ends; 0 = never.",
              0, 1e9});
  schema.add({"train.min_improvement", 0.0, "Of the validation loss, for train.patience.", 0, 1e9});
  schema.add({"train.skip_outliers",
              0.0,
              "Leaves a step out whose loss or gradient norm is more standard deviations than this "
              "above the mean of the steps before it; 0 = none.",
              0,
              1e9,
              {},
              true});
  schema.add(
      {"train.outlier_window", whole(128), "Of train.skip_outliers, in steps.", 4, 1e6, {}, true});
  schema.add({"train.noise_scale", false,
              "Measures the gradient noise scale: the batch, in tokens, beyond which more help "
              "little."});
}

void add_train_keys(config::Schema& schema) {
  schema.add({"train.steps", whole(1000), "Optimizer steps.", 1, kMost});
  schema.add(
      {"train.seed", whole(1), "Seed of initial values and data order.", 0, kMost, {}, true});
  schema.add({"train.learning_rate", 1e-3, "Peak learning rate.", 0, 1e3, {}, true});
  add_schedule_keys(schema);
  schema.add({"train.weight_decay", 0.1, "Weight decay, of matrices only.", 0, 1e3, {}, true});
  schema.add({"train.beta1", 0.9, "Decay of the mean (adamw, lamb, lion).", 0, 1, {}, true});
  schema.add(
      {"train.beta2", 0.99, "Decay of the mean square; of lion's momentum.", 0, 1, {}, true});
  schema.add({"train.epsilon", 1e-8, "Epsilon of adamw and lamb.", 0, 1, {}, true});
  schema.add({"train.clip",
              1.0,
              "Largest global norm of the gradient; 0 = no clipping.",
              0,
              1e9,
              {},
              true});
  schema.add({"train.precision",
              text("fp32"),
              "bf16 computes in bf16 with fp32 master weights.",
              0,
              0,
              {"fp32", "bf16", "fp64"},
              true});
  add_helper_keys(schema);
  schema.add({"train.validate_every", whole(100),
              "Steps between validations; 0 = only before and after.", 0, kMost});
  schema.add({"train.validate_sequences", whole(64),
              "Sequences of a validation, spread evenly over the held-out text.", 1, kMost});
  schema.add(
      {"train.sample_bytes", whole(400), "Text generated at the end, in bytes; 0 = none.", 0, 1e6});
  schema.add({"train.device", text("cpu"), "Where tensors live.", 0, 0, {"cpu"}});
  schema.add({"train.kernel_threads",
              whole(1),
              "Threads of one kernel, honoured exactly; part of what decides the bits.",
              1,
              1024,
              {},
              true});
  schema.add({"train.kernel_table", text(""),
              "A file of `trireme doctor --tune`: which library computes which product. Empty: the "
              "built-in table. What it says is part of what decides the bits."});
  schema.add(
      {"train.lanes", whole(1),
       "Micro-batches that a rank computes at once, each with kernel_threads threads; changes "
       "no bit.",
       1, 1024});
  schema.add({"train.reproducible", true,
              "Refuse ranks whose identity differs, so that every layout gives the same bits."});
}

void add_local_keys(config::Schema& schema) {
  schema.add({"parallel.local_steps", whole(8),
              "Of local_sgd, diloco, easgd, gossip: steps that a rank makes on its own between two "
              "exchanges.",
              1, 1e9});
  schema.add({"parallel.post_local_after", whole(0),
              "Of the same: the first steps, which are synchronous, as under plain.", 0, kMost});
  schema.add({"parallel.outer_rate", 0.7, "Of diloco: learning rate of the outer SGD.", 1e-9, 1e3});
  schema.add(
      {"parallel.outer_momentum", 0.9, "Of diloco: Nesterov's, of the outer SGD.", 0, 0.999999});
  schema.add({"parallel.elastic", 0.9,
              "Of easgd: the share of its way to the ranks' mean that the centre goes in an "
              "exchange; a rank goes this over the ranks of its way to the centre.",
              1e-9, 1});
  schema.add({"parallel.graph", text("one_peer"),
              "Of gossip: who averages with whom (`trireme show gossip`).", 0, 0,
              plan::mixing_graphs()});
}

void add_parallel_keys(config::Schema& schema) {
  schema.add(
      {"parallel.sync",
       text("plain"),
       "What each rank keeps: plain, all of it; zero1, a part of the optimizer state; zero2, "
       "of the gradients, too; zero3, of the weights, too; hybrid, as zero3 within a host. "
       "A copy on every rank that trains by itself and changes bits with the number of ranks: "
       "local_sgd, averaged now and then; diloco, moved by an outer optimizer; easgd, pulled to a "
       "centre; gossip, averaged with neighbours.",
       0,
       0,
       {"plain", "zero1", "zero2", "zero3", "hybrid", "local_sgd", "diloco", "easgd", "gossip"}});
  add_local_keys(schema);
  schema.add({"parallel.data", whole(0), "Data-parallel ranks; 0 = what is left (all).", 0, 1e6});
  schema.add({"parallel.shard", whole(0),
              "Ranks that share one copy under hybrid; 0 = those of a host.", 0, 1e6});
  for (const char* axis : {"pipeline", "context", "tensor", "expert"}) {
    schema.add({std::string("parallel.") + axis, whole(1), "Ranks along this axis.", 1, 1});
  }
  schema.add({"memory.offload", text(""),
              "A folder: optimizer state and bf16's master weights lie in a mapped file there. "
              "Empty: in memory."});
  schema.add({"comm.transport",
              text("auto"),
              "How bytes move between ranks.",
              0,
              0,
              {"auto", "shm", "tcp", "mixed", "mpi", "sim"}});
  schema.add({"comm.link", text("25us,1GB/s"),
              "Latency and rate of every rank's link under comm.transport = \"sim\"."});
  schema.add({"comm.sockets", whole(1), "TCP connections between two ranks.", 1, 64});
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
  schema.add({"timeout", 30.0, "Seconds of silence after which a peer is lost.", 0.1, 1e6});
  schema.add({"timeout.user_code", 1800.0,
              "Seconds that a live peer may spend in its own code while others wait.", 0.1, 1e7});
  schema.add({"checkpoint.every", whole(500), "Steps between checkpoints; 0 = only at the end.", 0,
              kMost});
  schema.add({"checkpoint.keep", whole(3), "Newest checkpoints kept.", 1, 1e6});
  const char* later = "Leave it out; docs/architecture.md says what is there.";
  for (const char* key : {"parallel.schedule", "memory.recompute", "memory.limit", "server.count",
                          "server.staleness", "server.replicas", "checkpoint.path"}) {
    schema.refuse(key, later);
  }
}

}  // namespace

void add_job_keys(config::Schema& schema) {
  add_data_keys(schema);
  add_train_keys(schema);
  add_optimizer_keys(schema);
  add_parallel_keys(schema);
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
