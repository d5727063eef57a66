// A training that goes on when a rank is lost. The function given to run_elastic() is called once for
// each set of ranks; resume() takes the state from the remaining ranks. With servers, the servers
// keep the optimizer's state.
//
//     elastic [STEP]     after STEP steps, in the first set of ranks, the last rank kills itself
#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "trireme/trireme.h"

namespace {

constexpr long kSteps = 40;
constexpr int kSamples = 96;

// Two interleaved spirals; sample i is a function of i.
struct Spirals : torch::data::datasets::Dataset<Spirals> {
  torch::data::Example<> get(std::size_t index) override {
    const double turn = 0.1 * static_cast<double>(index / 2), side = index % 2 == 0 ? 1 : -1;
    return {torch::tensor({side * turn * std::cos(turn), side * turn * std::sin(turn)})
                .to(torch::kFloat),
            torch::tensor(static_cast<std::int64_t>(index % 2))};
  }
  std::optional<std::size_t> size() const override { return kSamples; }
};

int train(trireme::Job& job, long kill_at) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 2));
  torch::optim::Adam adam(net->parameters(), 1e-2);
  trireme::DataParallel parallel(job, *net, adam,
                                 {.sync = job.roles().servers > 0 ? "server" : "plain"});
  trireme::Sampler sampler(job, kSamples, {.batch = 24, .seed = 7});
  auto loader = torch::data::make_data_loader(Spirals().map(torch::data::transforms::Stack<>()),
                                              sampler, /*micro-batch*/ 2);
  trireme::Checkpointer checkpointer(job, "no-checkpoints", {.every = 0, .lock = false});
  checkpointer.add("train", parallel).add("data", sampler);
  const long first = checkpointer.resume();
  if (job.rank() == 0) std::printf("%d ranks go on at step %ld\n", job.size(), first);
  while (parallel.steps() < kSteps) {
    for (auto& micro : *loader) {
      torch::nn::functional::cross_entropy(net->forward(micro.data), micro.target).backward();
      if (!parallel.step()) continue;
      checkpointer.after(parallel.steps() - 1);
      if (parallel.steps() == kill_at && first == 0 && job.rank() == job.size() - 1)
        std::raise(SIGKILL);
      if (parallel.steps() == kSteps) break;
    }
  }
  const std::string hash = parallel.weights_hash();
  if (job.rank() == 0) std::printf("after step %ld the weights are %s\n", kSteps, hash.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  trireme::Job job(argc, argv);
  if (job.role() == trireme::Role::Server) return trireme::serve(job);
  const long kill_at = argc > 1 ? std::atol(argv[1]) : 0;
  return trireme::run_elastic(job, [&] { return train(job, kill_at); });
}
