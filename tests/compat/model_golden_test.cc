// ResNet-18 and the BERT encoder against PyTorch's own results (golden/resnet.safetensors and
// golden/bert.safetensors, written by make_model_golden.py): fp64, 50 steps of a Strategy within
// 1e-10, batch norm's running statistics among them; fp32 gradients of the first step within 1e-5.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "trireme/base/error.h"
#include "trireme/format/safetensors.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/determinism.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::model_golden_test {
namespace {

constexpr std::int64_t kSteps = 50, kSamples = 4, kSide = 16, kBlock = 12, kVocab = 24;

// As numbers() in make_model_golden.py.
at::Tensor numbers(at::IntArrayRef sizes, std::int64_t key) {
  at::Tensor values = at::empty(sizes, at::kDouble);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const std::int64_t hash = (i + 1) * (40503 + 2 * key) * 2654435761 >> 7;
    values.data_ptr<double>()[i] = static_cast<double>(hash % (1 << 21) - (1 << 20)) / (1 << 20);
  }
  return values;
}

MicroBatch images_of(std::int64_t step) {
  at::Tensor images = numbers({kSamples, 3, kSide, kSide}, 1000 + step);
  at::Tensor targets = at::empty({kSamples}, at::kLong);
  for (std::int64_t s = 0; s < kSamples; ++s) {
    const std::int64_t target = (3 * step + 5 * s) % 10;
    targets[s] = target;
    images[s].select(1, target % kSide) += 1;
  }
  return {.count = kSamples, .fields = {{"images", images}, {"targets", targets}}};
}

MicroBatch tokens_of(std::int64_t step) {
  at::Tensor tokens = at::empty({kSamples, kBlock}, at::kLong);
  at::Tensor targets = at::full({kSamples, kBlock}, -1, at::kLong);
  std::int64_t asked = 0;
  for (std::int64_t s = 0; s < kSamples; ++s) {
    for (std::int64_t t = 0; t < kBlock; ++t) {
      const std::int64_t token = (7 * (step + s) + (s + 2) * t + t * t / 3) % (kVocab - 1);
      const bool hidden = t >= (step + s) % 4 && (t - (step + s) % 4) % 4 == 0;
      tokens[s][t] = hidden ? kVocab - 1 : token;
      if (!hidden) continue;
      targets[s][t] = token;
      ++asked;
    }
  }
  return {.count = asked, .fields = {{"tokens", tokens}, {"targets", targets}}};
}

// One of the two models, and the file of PyTorch's results for it.
struct Subject {
  std::string name;
  std::function<models::Blocks(const std::string& precision)> make;
  MicroBatch (*batch)(std::int64_t step);
  OptimizerOptions optimizer;
};

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all = {
      {"resnet",
       [](const std::string& precision) {
         return models::make_resnet({.width = 2, .side = kSide, .precision = precision});
       },
       images_of, Sgd{.learning_rate = 0.01, .momentum = 0.9, .weight_decay = 5e-4}},
      {"bert",
       [](const std::string& precision) {
         return models::make_bert({.layers = 2,
                                   .heads = 2,
                                   .width = 16,
                                   .block = kBlock,
                                   .vocab = kVocab,
                                   .precision = precision});
       },
       tokens_of, AdamW{.learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1}}};
  return all;
}

// The tied output has the embedding's values.
std::string owner_of(const std::string& name) {
  return name == "head.weight" ? "embed.weight" : name;
}

// The same model, with initial values as from fill() in make_model_golden.py.
models::Blocks filled(const models::Blocks& model, bool tied) {
  std::set<std::string> names;
  for (const models::BlockSpec& spec : model.specs())
    for (const models::NamedTensor& parameter : spec.make()->parameters()) {
      const std::string name = spec.name + "." + parameter.name;
      names.insert(tied ? owner_of(name) : name);
    }
  models::Blocks result;
  for (models::BlockSpec spec : model.specs()) {
    spec.make = [make = spec.make, block = spec.name, names, tied] {
      auto made = make();
      for (const models::NamedTensor& parameter : made->parameters()) {
        std::string name = block + "." + parameter.name;
        if (tied) name = owner_of(name);
        const auto key = std::distance(names.begin(), names.find(name));
        const at::Tensor values = numbers(parameter.tensor.sizes(), key);
        const bool norm = parameter.tensor.dim() < 2 && name.ends_with("weight");
        parameter.tensor.detach().copy_(
            parameter.tensor.dim() >= 2 ? values / 4 : values / 8 + (norm ? 1.0 : 0.0));
      }
      return made;
    };
    result.add_block(std::move(spec));
  }
  for (const models::Tie& tie : model.ties()) result.tie(tie.alias, tie.owner);
  return result;
}

// TRIREME_FRESH_GOLDEN: a folder to which the installed PyTorch has written the files again.
struct Golden {
  explicit Golden(const std::string& name) : file(folder() + "/" + name + ".safetensors") {}
  static std::string folder() {
    const char* fresh = std::getenv("TRIREME_FRESH_GOLDEN");
    return fresh != nullptr ? fresh : TRIREME_GOLDEN;
  }
  at::Tensor tensor(const std::string& name) const {
    const format::TensorView* view = file.find(name);
    if (view == nullptr) throw ConfigError("the golden file has no " + name);
    const Buffer buffer{.data = const_cast<std::byte*>(view->bytes.data()),
                        .count = view->bytes.size() / size_of(view->dtype),
                        .dtype = view->dtype};
    return tensor::view_of(buffer, view->shape).clone();
  }
  format::SafetensorsFile file;
};

double relative(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / b.to(at::kDouble).norm()).item<double>();
}

TEST(ModelGolden, FiftyStepsInFp64ArePyTorchs) {
  for (const Subject& subject : subjects()) {
    const Golden golden(subject.name);
    testing::run_ranks(1, [&](testing::RankContext& rank) {
      Strategy strategy(parallel::StrategyContext{.world = rank.world.get()},
                        filled(subject.make("fp64"), subject.name == "bert"),
                        {.precision = "fp64", .kernel_threads = 1},
                        optim::make_optimizer(subject.optimizer));
      const at::Tensor losses = golden.tensor("losses");
      for (std::int64_t step = 0; step < kSteps; ++step) {
        const MicroBatch micro = subject.batch(step);
        const Batch batch{.micro = {micro}, .total = 1, .global_count = micro.count, .step = step};
        const double wanted = losses[step].item<double>();
        ASSERT_NEAR(strategy.step(batch, token_loss()).loss, wanted, 1e-10 * wanted)
            << subject.name << ", step " << step;
      }
      std::size_t compared = 0;
      for (const NamedShard& shard : strategy.state()) {
        if (shard.name.starts_with("optimizer/")) continue;
        ++compared;
        const at::Tensor wanted = golden.tensor("final/" + shard.name);
        if (wanted.scalar_type() == at::kLong) {
          EXPECT_TRUE(at::equal(shard.local, wanted)) << shard.name;
        } else {
          EXPECT_LT(relative(shard.local, wanted), 1e-10) << subject.name << ", " << shard.name;
        }
      }
      EXPECT_GT(compared, 30u);
    });
  }
}

TEST(ModelGolden, FirstGradientsInFp32) {
  tensor::set_up_process({.kernel_threads = 1});
  for (const Subject& subject : subjects()) {
    const Golden golden(subject.name);
    const MicroBatch micro = subject.batch(0);
    models::Value value = {micro.fields[0].second};
    std::map<std::string, at::Tensor> leaves;
    const models::Blocks model = filled(subject.make("fp32"), subject.name == "bert");
    for (const models::BlockSpec& spec : model.specs()) {
      const auto block = spec.make();
      for (const models::NamedTensor& parameter : block->parameters())
        leaves[spec.name + "." + parameter.name] = parameter.tensor;
      value = block->forward(std::vector<models::Value>{value});
    }
    const at::Tensor loss = token_loss()(value, micro);
    loss.backward();
    const auto count = static_cast<double>(micro.count);
    EXPECT_NEAR(loss.item<double>() / count, golden.tensor("losses")[0].item<double>(), 1e-5);
    const bool tied = subject.name == "bert";
    for (const auto& [name, leaf] : leaves) {
      if (tied && name == "head.weight") continue;
      at::Tensor gradient = leaf.grad().to(at::kDouble) / count;
      if (tied && name == "embed.weight")
        gradient = gradient + leaves.at("head.weight").grad().to(at::kDouble) / count;
      EXPECT_LT(relative(gradient, golden.tensor("gradient/" + name)), 1e-5)
          << subject.name << ", " << name;
    }
  }
}

}  // namespace
}  // namespace trireme::model_golden_test
