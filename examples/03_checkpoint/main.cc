// Trains 20 steps and saves every 5. If it is killed at any moment, the next start continues at the
// last checkpoint, on any number of ranks, and ends with the same weights, bit for bit.
//
//     checkpoint DIR [STEP [SIGNAL]]
//                    after STEP steps the last rank gets SIGNAL (9: SIGKILL)
#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "spirals.h"
#include "trireme/trireme.h"

namespace {

constexpr long kSteps = 20;

}  // namespace

int main(int argc, char** argv) {
  trireme::Job job(argc, argv);
  if (argc < 2) {
    std::fprintf(stderr, "checkpoint DIR [STEP [SIGNAL]]\n");
    return 2;
  }
  const std::string directory = argv[1];
  const long signal_at = argc > 2 ? std::atol(argv[2]) : 0;
  const int signal = argc > 3 ? std::atoi(argv[3]) : SIGKILL;

  // [data_parallel]
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 2));
  torch::optim::Adam adam(net->parameters(), 1e-2);
  trireme::DataParallel parallel(job, *net, adam);
  trireme::Sampler sampler(job, kSamples, {.batch = 12, .seed = 7});
  auto loader = torch::data::make_data_loader(Spirals().map(torch::data::transforms::Stack<>()),
                                              sampler, /*micro-batch*/ 2);
  // [/data_parallel]

  trireme::Checkpointer checkpointer(job, directory, {.every = 5, .keep = 3});
  checkpointer.add("train", parallel).add("data", sampler);
  const long first = checkpointer.resume();
  if (job.rank() == 0) std::printf("%s at step %ld\n", first == 0 ? "starts" : "goes on", first);

  // [loop]
  while (parallel.steps() < kSteps) {
    for (auto& micro : *loader) {  // goes on inside the epoch, too
      torch::nn::functional::cross_entropy(net->forward(micro.data), micro.target).backward();
      if (!parallel.step()) continue;
      if (parallel.stop_signal() != 0 && job.rank() == 0)
        std::printf("asked to stop in step %ld\n", parallel.steps());
      checkpointer.after(parallel.steps() - 1);  // asked to stop: saves, throws StopRequested
      if (parallel.steps() == signal_at && job.rank() == job.size() - 1) {
        checkpointer.wait();  // else the signal may come while the last save is being written
        std::raise(signal);
      }
      if (parallel.steps() == kSteps) break;
    }
  }
  // [/loop]
  checkpointer.save_and_wait(parallel.steps());
  if (job.rank() != 0) return 0;
  std::printf("after step %ld the weights are %s\n", kSteps, parallel.weights_hash().c_str());
  trireme::save_weights(directory + "/weights.safetensors", *net);
}
