// The trainings that the numerics tests compare: one case, through DataParallel or Strategy, with
// the reduction that the test asks for. They print nothing; a Record holds the results and the
// samples that this rank computed.
#pragma once

#include <torch/data/dataloader.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/stack.h>
#include <torch/optim/adamw.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/numerics/models.h"
#include "trireme/base/weights_hash.h"
#include "trireme/input/epoch_order.h"
#include "trireme/input/loader_sampler.h"
#include "trireme/job/job.h"
#include "trireme/job/job_input.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::numerics {

struct Case {
  std::string name;  // "blocks-gpt" ...
  std::int64_t samples = 240, batch = 24, micro = 2;
  int steps = 20;
  std::uint64_t seed = 1;
  int workers = 0;  // of the loader (DataParallel)
  std::string sync = "plain";
  double clip = 0;
  int lanes = 1;  // Strategy only
  int pipeline = 1;
  std::string schedule = "1f1b";
};

struct Record {
  std::string hash;    // of the weights
  std::string losses;  // of the loss curve's bits
  // Micro-batches computed by this rank: "step/index" (Strategy), "epoch/content:loss"
  // (DataParallel).
  std::set<std::string> computed;
  int applied = 0;
  int lanes = 1;  // in use at the end (Strategy)
  std::string lanes_note;
  std::map<std::string, at::Tensor> weights;
};

inline bool of_numbers(const Case& which) { return which.name.find("mlp") != std::string::npos; }
inline bool of_images(const Case& which) { return which.name.find("resnet") != std::string::npos; }
inline bool of_masks(const Case& which) { return which.name.find("bert") != std::string::npos; }

template <class Saveable>
void take_weights(Saveable& strategy, Record& record) {
  record.hash = strategy.weights_hash();
  for (const NamedShard& shard : strategy.state())
    if (shard.name.find('/') == std::string::npos) record.weights[shard.name] = shard.local.clone();
}

inline std::string hash_of(std::vector<double> values) {
  return weights_hash({{"losses",
                        DType::F64,
                        {static_cast<std::int64_t>(values.size())},
                        std::as_bytes(std::span(values))}})
      .substr(0, 16);
}

inline std::string hash_of(const at::Tensor& rows) {
  const at::Tensor content = rows.contiguous();
  const auto bytes =
      std::span(static_cast<const std::byte*>(content.const_data_ptr()), content.nbytes());
  return std::to_string(tensor_hash({"", DType::U8, {}, bytes}));
}

// DataParallel: module, loader, torch::optim.
template <class Net>
Record train_module(Job& job, const Case& which, const parallel::ReduceTerms& reduce) {
  job.input().set_plan(nullptr);
  Sampler sampler(job, which.samples, {.batch = which.batch, .seed = which.seed});
  Net net(which.seed);
  torch::optim::AdamW adam(net.parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0));
  parallel::StrategyContext env = parallel::context_of(job);
  env.reduce = reduce;
  DataParallel parallel(env, net, adam,
                        {.sync = which.sync, .clip = which.clip, .bucket_bytes = 1024});
  auto loader = torch::data::make_data_loader(
      Samples(which.samples, of_numbers(which)).map(torch::data::transforms::Stack<>()), sampler,
      torch::data::DataLoaderOptions(static_cast<std::size_t>(which.micro))
          .workers(static_cast<std::size_t>(which.workers)));
  Record record;
  int epoch = 0;
  for (; parallel.steps() < which.steps; ++epoch) {
    for (auto& micro : *loader) {
      const at::Tensor loss = mean_loss(net.forward(micro.data), micro.target);
      record.computed.insert(std::to_string(epoch) + "/" + hash_of(micro.data) + ":" +
                             hash_of({loss.item<double>()}));
      loss.backward();
      record.applied += parallel.step() ? 1 : 0;
      if (parallel.steps() == which.steps) break;
    }
  }
  take_weights(parallel, record);
  record.losses = "-";  // each rank sees its own: they are in `computed`
  return record;
}

// How many items per sample a Strategy's mean loss counts.
inline std::int64_t items_of(const Case& which) {
  return of_numbers(which) || of_images(which) ? 1 : of_masks(which) ? 2 : kLength;
}

// Sample i for Strategy: that of Samples, an image, or tokens of which two are asked for.
inline torch::data::Example<> sample_of(const Case& which, std::int64_t i) {
  if (of_images(which)) {
    at::Tensor image = at::empty({3, kImageSide, kImageSide}, at::kFloat);
    tensor::fill_uniform(image, 5, "image " + std::to_string(i), -1, 1);
    return {image, at::scalar_tensor(i % 10, at::kLong)};
  }
  Samples samples(which.samples, of_numbers(which));
  auto sample = samples.get(static_cast<std::size_t>(i));
  if (!of_masks(which)) return sample;
  at::Tensor asked = at::full({kLength}, -1, at::kLong);
  for (const std::int64_t at : {i % kLength, (i + 3) % kLength}) {
    asked[at] = sample.data[at];
    sample.data[at] = kVocab - 1;
  }
  return {sample.data, asked};
}

// The global batches that Sampler gives, for Strategy.
inline Batch batch_of(const Case& which, std::int64_t step, const Job& job) {
  const std::int64_t per_epoch = which.samples / which.batch;
  const auto order = epoch_order(which.samples, which.seed, step / per_epoch, true);
  const auto total = static_cast<std::uint32_t>(which.batch / which.micro);
  Batch batch{.total = total, .step = step};
  batch.global_count = which.batch * items_of(which);
  const std::string input = of_images(which) ? "images" : "tokens";
  for (const std::uint32_t index : leaves_of(job.input().assignment(), total, job.rank())) {
    std::vector<at::Tensor> data, targets;
    const std::int64_t first = step % per_epoch * which.batch + index * which.micro;
    for (std::int64_t i = first; i < first + which.micro; ++i) {
      const auto sample = sample_of(which, order[static_cast<std::size_t>(i)]);
      data.push_back(sample.data);
      targets.push_back(sample.target);
    }
    batch.micro.push_back({.index = index,
                           .first_sample = first,
                           .count = which.micro * items_of(which),
                           .fields = {{input, at::stack(data)}, {"targets", at::stack(targets)}}});
  }
  return batch;
}

// Strategy: blocks and a configuration.
inline Record train_blocks(Job& job, const Case& which, const models::Blocks& model,
                           const std::string& precision, const parallel::ReduceTerms& reduce) {
  parallel::StrategyContext env = parallel::context_of(job);
  env.reduce = reduce;
  Strategy strategy(env, model,
                    {.sync = which.sync,
                     .pipeline = which.pipeline,
                     .schedule = which.schedule,
                     .shard = parallel::shards_in_groups(which.sync) && job.size() % 2 == 0 ? 2 : 0,
                     .precision = precision,
                     .clip = which.clip,
                     .seed = which.seed,
                     .bucket_bytes = 1024,
                     .lanes = which.lanes},
                    optim::make_optimizer(AdamW{.learning_rate = 1e-2, .weight_decay = 0}));
  Record record;
  const Loss loss = [&](const models::Value& output, const MicroBatch& micro) {
    if (!of_numbers(which)) return token_loss()(output, micro);
    return mean_loss(output.at(0), micro.field("targets")) * static_cast<double>(micro.count);
  };
  std::vector<double> losses;
  std::mutex mutex;
  for (std::int64_t step = 0; step < which.steps; ++step) {
    const Loss counted = [&](const models::Value& output, const MicroBatch& micro) {
      const std::lock_guard lock(mutex);  // lanes call it side by side
      record.computed.insert(std::to_string(step) + "/" + std::to_string(micro.index));
      return loss(output, micro);
    };
    losses.push_back(strategy.step(batch_of(which, step, job), counted).loss);
    ++record.applied;
  }
  record.losses = hash_of(losses);
  record.lanes = strategy.notes().num_lanes;
  record.lanes_note = strategy.notes().lanes;
  take_weights(strategy, record);
  return record;
}

inline Record train(Job& job, const Case& which,
                    const parallel::ReduceTerms& reduce = parallel::tree_reduce) {
  const auto gpt = [&](const std::string& precision) {
    return models::make_gpt({.layers = 2,
                             .heads = 2,
                             .width = kWidth,
                             .block = kLength,
                             .vocab = kVocab,
                             .dropout = which.name.ends_with("dropout") ? 0.2 : 0.0,
                             .precision = precision,
                             .seed = which.seed});
  };
  if (which.name == "blocks-gpt" || which.name == "blocks-gpt-dropout")
    return train_blocks(job, which, gpt("fp32"), "fp32", reduce);
  for (const char* precision : {"bf16", "fp16"})
    if (which.name == std::string("blocks-gpt-") + precision)
      return train_blocks(job, which, gpt(precision), precision, reduce);
  if (which.name.starts_with("blocks-resnet")) {
    const std::string precision = which.name.ends_with("-bf16") ? "bf16" : "fp32";
    return train_blocks(
        job, which,
        models::make_resnet(
            {.width = 4, .side = kImageSide, .precision = precision, .seed = which.seed}),
        precision, reduce);
  }
  if (which.name == "blocks-bert")
    return train_blocks(job, which,
                        models::make_bert({.layers = 1,
                                           .heads = 2,
                                           .width = kWidth,
                                           .block = kLength,
                                           .vocab = kVocab,
                                           .seed = which.seed}),
                        "fp32", reduce);
  if (which.name == "blocks-tied")
    return train_blocks(job, which, language_model_blocks(which.seed), "fp32", reduce);
  if (which.name.starts_with("blocks-dropout"))
    return train_blocks(job, which, dropout_blocks(which.seed, which.name.ends_with("foreign")),
                        "fp32", reduce);
  if (which.name == "blocks-mlp")
    return train_blocks(job, which, perceptron_blocks(which.seed), "fp32", reduce);
  if (which.name.starts_with("module-mlp")) return train_module<Perceptron>(job, which, reduce);
  return train_module<LanguageModel>(job, which, reduce);
}

}  // namespace trireme::numerics
