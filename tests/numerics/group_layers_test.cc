// Context and expert parallelism over real processes, where messages arrive while a rank computes:
// ring attention over long sequences and a GPT with experts, against one process.
#include "trireme/layers/group_layers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/job/job.h"
#include "trireme/layers/context/positions.h"
#include "trireme/layers/context/ring_attention.h"
#include "trireme/models/models.h"
#include "trireme/placement/stage.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

void require_near(const at::Tensor& got, const at::Tensor& wanted, const std::string& what) {
  const double distance = (got - wanted).norm().item<double>() / wanted.norm().item<double>();
  if (!(distance < 1e-5)) throw std::runtime_error(what + " is off by " + std::to_string(distance));
}

TRIREME_PROCESS(ring) {
  tensor::set_up_process({.kernel_threads = 1});
  Job job(argc, argv);
  constexpr std::int64_t kLength = 2048, kHeads = 2, kWidth = 32;
  at::Tensor qkv = at::empty({1, kLength, 3 * kWidth}), upstream = at::empty({1, kLength, kWidth});
  tensor::fill_normal(qkv, 1, "qkv", 0, 1.5);
  tensor::fill_normal(upstream, 1, "upstream", 0, 1);
  const auto own = [&](const at::Tensor& whole) {
    return parallel::cut_positions(whole, 1, job.rank(), job.size());
  };
  for (const bool causal : {true, false}) {
    const at::Tensor leaf = qkv.clone().set_requires_grad(true),
                     part = own(qkv).set_requires_grad(true);
    const at::Tensor whole = tensor::attention(leaf, kHeads, causal);
    whole.backward(upstream);
    const at::Tensor ours = parallel::ring_attention(part, kHeads, causal, job.world());
    ours.backward(own(upstream));
    require_near(ours, own(whole), "attention");
    require_near(part.grad(), own(leaf.grad()), "its gradient");
  }
  return 0;
}

MicroBatch text() {
  at::Tensor noise = at::empty({8, 33}, at::kFloat);
  tensor::fill_uniform(noise, 7, "text", 0, 64);
  const at::Tensor tokens = noise.to(at::kLong).clamp(0, 63);
  return {.count = 8 * 32,
          .fields = {{"tokens", tokens.narrow(1, 0, 32).contiguous()},
                     {"targets", tokens.narrow(1, 1, 32).contiguous()}}};
}

std::map<std::string, at::Tensor> gradients(const MicroBatch& micro) {
  parallel::Stage stage(
      models::make_gpt(
          {.layers = 2, .heads = 2, .width = 32, .block = 32, .vocab = 64, .experts = 8}),
      1);
  token_loss()(stage.forward(micro, 0), micro).backward();
  std::map<std::string, at::Tensor> all;
  for (const auto& member : stage.members())
    for (const models::NamedTensor& own : member.block->parameters())
      all[member.name + "." + own.name] = own.tensor.grad();
  return all;
}

TRIREME_PROCESS(experts) {
  tensor::set_up_process({.kernel_threads = 1});
  Job job(argc, argv);
  const auto wanted = gradients(text());
  const models::LayersScope layers(parallel::expert_layers(job.world(), models::local_layers()));
  for (const auto& [name, own] : gradients(parallel::own_sequences(text(), job.rank(), job.size())))
    if (own.numel() > 0) require_near(own, wanted.at(name), name);  // empty: another rank's expert
  return 0;
}

TEST(GroupLayers, OverRealProcessesAreThoseOfOne) {
  for (const char* body : {"ring", "experts"}) {
    for (const auto& [ranks, transport] : {std::pair{2, "shm"}, {4, "shm"}, {2, "tcp"}}) {
      const testing::ProcessRun run = testing::run_processes(
          ranks, body, {.timeout = std::chrono::seconds(30), .transport = transport});
      EXPECT_EQ(run.exit_code, 0) << body << " on " << ranks << " ranks over " << transport << "\n"
                                  << run.describe();
    }
  }
}

}  // namespace
}  // namespace trireme
