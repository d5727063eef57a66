// Trains 20 steps with a backup. If it is killed at any moment, the same command resumes. In the
// end the backup is gone and the weights are in FILE.
//
//     backup FOLDER FILE [STEP]
//                    a backup that does not exist yet is begun; STEP: after so many steps of the first
//                    start the last rank gets SIGKILL
#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "spirals.h"
#include "trireme/trireme.h"

constexpr long kSteps = 20;

void crash(trireme::Job& job) {
  if (job.rank() == job.size() - 1) std::raise(SIGKILL);
}

int main(int argc, char** argv) {
  trireme::Job job(argc, argv);
  if (argc < 3) {
    std::fprintf(stderr, "backup FOLDER FILE [STEP]\n");
    return 2;
  }
  const std::string folder = argv[1], file = argv[2];
  const long kill_at = argc > 3 ? std::atol(argv[3]) : 0;
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 2));
  torch::optim::Adam adam(net->parameters(), 1e-2);
  trireme::DataParallel parallel(job, *net, adam);
  trireme::Sampler sampler(job, kSamples, {.batch = 12, .seed = 7});
  auto loader = torch::data::make_data_loader(Spirals().map(torch::data::transforms::Stack<>()),
                                              sampler, /*micro-batch*/ 2);
  // [backup]
  trireme::BackupAndRestore backup(job, folder, {.every = 1});  // steps
  backup.add("train", parallel).add("data", sampler);
  const long first = backup.restore();
  if (job.rank() == 0) std::printf("%s at step %ld\n", first == 0 ? "starts" : "goes on", first);
  while (parallel.steps() < kSteps) {
    for (auto& micro : *loader) {
      torch::nn::functional::cross_entropy(net->forward(micro.data), micro.target).backward();
      if (!parallel.step()) continue;
      backup.after(parallel.steps() - 1);
      if (first == 0 && parallel.steps() == kill_at) crash(job);
      if (parallel.steps() == kSteps) break;
    }
  }
  if (job.rank() == 0) trireme::save_weights(file, *net);
  backup.done();  // removes the backup: the next start begins anew
  // [/backup]
}
