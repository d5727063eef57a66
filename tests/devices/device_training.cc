#include "tests/devices/device_training.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/input/image_files.h"
#include "trireme/kernel/assignment.h"
#include "trireme/models/models.h"
#include "trireme/net/alone_transport.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/server_training_test.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/emulated_device/test_device.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::devices {
namespace {

constexpr std::int64_t kBlock = 8, kVocab = 22, kSequences = 2, kImages = 4, kClasses = 5;

at::Tensor drawn(at::IntArrayRef sizes, std::int64_t step, std::uint32_t index, double high) {
  at::Tensor values = at::empty(sizes, at::kFloat);
  tensor::fill_uniform(values, 7, std::to_string(step) + "/" + std::to_string(index), 0, high);
  return values;
}

MicroBatch sequences(std::int64_t step, std::uint32_t index) {
  const at::Tensor tokens =
      drawn({kSequences, kBlock + 1}, step, index, kVocab).to(at::kLong).clamp_max(kVocab - 1);
  return {.index = index,
          .first_sample = kSequences * index,
          .count = kSequences * kBlock,
          .fields = {{"tokens", tokens.narrow(1, 0, kBlock).contiguous()},
                     {"targets", tokens.narrow(1, 1, kBlock).contiguous()}}};
}

std::function<MicroBatch(std::int64_t, std::uint32_t)> samples(const char* field,
                                                               std::vector<std::int64_t> shape) {
  return [field, shape](std::int64_t step, std::uint32_t index) -> MicroBatch {
    const at::Tensor values = drawn(shape, step, index, 1);
    const at::Tensor targets = drawn({shape[0]}, step, index + 1000, kClasses);
    return {
        .index = index,
        .first_sample = shape[0] * index,
        .count = shape[0],
        .fields = {{field, values}, {"targets", targets.to(at::kLong).clamp_max(kClasses - 1)}}};
  };
}

at::Tensor class_loss(const models::Value& output, const MicroBatch& micro) {
  return tensor::cross_entropy_sum(output.at(0), micro.field("targets"));
}

models::GptConfig small_gpt(const std::string& precision) {
  return {.layers = 2,
          .heads = 2,
          .width = 16,
          .block = kBlock,
          .vocab = kVocab,
          .bias = true,
          .dropout = 0.1,
          .precision = precision};
}

class Rank {
 public:
  Rank(parallel::StrategyContext env, const Task& task, const Training& training)
      : task_(task), training_(training), env_(std::move(env)) {
    env_.assign = [this](const kernel::Assignment& dealt) { assignment_ = dealt; };
    StrategyOptions options = training.options;
    if (training.on_device)
      options.device = {DeviceKind::Other,
                        (training.first_device + env_.world->rank()) % training.devices};
    options.bucket_bytes = 2048;
    strategy_.emplace(env_, task.model(options.precision), options, training.optimizer);
  }

  Outcome train() {
    Outcome outcome;
    for (int step = 0; step < training_.steps; ++step) {
      const StepResult result = strategy_->step(batch(step), task_.loss);
      outcome.losses.push_back(result.loss);
      outcome.norms.push_back(result.gradient_norm.value_or(0));
      outcome.noise_scales.push_back(result.noise_scale.value_or(0));
    }
    outcome.validation = strategy_->evaluate({batch(100), batch(101)}, task_.loss);
    outcome.hash = strategy_->weights_hash();
    if (training_.options.ema != 0) {
      strategy_->use_average(true);
      outcome.average = strategy_->weights_hash();
    }
    EXPECT_EQ(strategy_->notes().lanes, "");
    return outcome;
  }

 private:
  Batch batch(std::int64_t step) const {
    Batch batch{.total = training_.total, .step = step};
    for (std::uint32_t i = 0; i < batch.total; ++i)
      batch.global_count += task_.micro_batch(step, i).count;
    for (const std::uint32_t i : leaves_of(assignment_, batch.total, env_.world->rank()))
      batch.micro.push_back(task_.micro_batch(step, i));
    return batch;
  }

  const Task& task_;
  const Training& training_;
  kernel::Assignment assignment_;
  parallel::StrategyContext env_;
  std::optional<Strategy> strategy_;
};

}  // namespace

const std::vector<Task>& tasks() {
  static const std::vector<Task> all{
      {"mlp",
       [](const std::string& precision) {
         return models::make_mlp({.widths = {12, 24, kClasses}, .precision = precision});
       },
       samples("features", {kImages, 12}), class_loss},
      {"gpt", [](const std::string& precision) { return models::make_gpt(small_gpt(precision)); },
       sequences, token_loss()},
      {"experts",
       [](const std::string& precision) {
         models::GptConfig spec = small_gpt(precision);
         spec.experts = 4;
         return models::make_gpt(spec);
       },
       sequences, token_loss()},
      {"bert",
       [](const std::string& precision) {
         return models::make_bert({.layers = 2,
                                   .heads = 2,
                                   .width = 16,
                                   .block = kBlock,
                                   .vocab = kVocab,
                                   .precision = precision});
       },
       sequences, token_loss()},
      {"resnet",
       [](const std::string& precision) {
         return models::make_resnet({.layers = {1, 1, 1, 1},
                                     .width = 4,
                                     .side = 8,
                                     .classes = kClasses,
                                     .precision = precision});
       },
       samples("images", {kImages, 3, 8, 8}), class_loss}};
  return all;
}

const Task& task(const std::string& name) {
  return *std::find_if(tasks().begin(), tasks().end(),
                       [&](const Task& one) { return one.name == name; });
}

namespace {

// Simulated ranks have one lane.
Outcome train_in_lanes(const Task& task, const Training& training) {
  comm::Communicator world(std::make_shared<net::AloneTransport>(RealWaiter::make()), {});
  return Rank({.world = &world}, task, training).train();
}

// Servers compute by kernels in this process.
std::vector<Outcome> train_workers(const Task& task, const Training& training) {
  std::vector<Outcome> all(static_cast<std::size_t>(training.ranks));
  testing::run_with_servers(
      training.ranks, training.servers,
      [&](int worker, const parallel::StrategyContext& env) {
        all[static_cast<std::size_t>(worker)] = Rank(env, task, training).train();
      },
      training.seed);
  return all;
}

std::vector<Outcome> train_ranks(const Task& task, const Training& training) {
  if (training.servers > 0) return train_workers(task, training);
  const tensor::LibTorchOnCpu as_devices;
  if (training.options.lanes > 1) return {train_in_lanes(task, training)};
  std::vector<Outcome> all(static_cast<std::size_t>(training.ranks));
  testing::run_ranks(training.ranks,
                     [&](testing::RankContext& context) {
                       all[static_cast<std::size_t>(context.rank)] =
                           Rank({.world = context.world.get()}, task, training).train();
                     },
                     {.seed = training.seed});
  return all;
}

// A gradient that is read too early may be no number: the step is refused then.
bool all_train_as(const Outcome& wanted, const Task& task, const Training& training) {
  try {
    const std::vector<Outcome> all = train_ranks(task, training);
    return std::all_of(all.begin(), all.end(), [&](const Outcome& one) { return one == wanted; });
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

Outcome train(const Task& task, const Training& training) {
  const std::vector<Outcome> all = train_ranks(task, training);
  for (const Outcome& one : all) EXPECT_EQ(one, all.front()) << task.name;
  return all.front();
}

WaitsLeftOut leave_waits_out(const Task& task, const Training& training, std::uint64_t most) {
  testing::reset_emulated_stats();
  const Outcome wanted = train(task, training);
  WaitsLeftOut result{.waits = testing::emulated_stats().waits};
  for (std::uint64_t left_out = 1; left_out <= result.waits;
       left_out += 1 + result.waits / most, ++result.tried) {
    const testing::CollectedRaces races;
    testing::skip_one_wait(left_out);
    const bool same = all_train_as(wanted, task, training);
    result.noticed += !races.all().empty();
    EXPECT_TRUE(same || !races.all().empty()) << "wait " << left_out << " of " << result.waits;
  }
  testing::skip_one_wait(0);
  return result;
}

}  // namespace trireme::devices
