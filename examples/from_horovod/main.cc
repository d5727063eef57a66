// Operations of Horovod and DistributedDataParallel programs, done with Trireme.
// docs/from-horovod.md and docs/from-ddp.md show these pieces beside theirs.
#include <torch/torch.h>

#include <cstdio>

#include "trireme/trireme.h"

namespace {

// A line through noisy points: y = 3 x - 1.
std::pair<at::Tensor, at::Tensor> points(std::int64_t first, std::int64_t count) {
  const at::Tensor x = torch::arange(first, first + count, torch::kFloat).reshape({count, 1}) / 64;
  return {x, 3 * x - 1};
}

double training(trireme::Job& job) {
  torch::manual_seed(1);
  torch::nn::Linear net(1, 1);
  // [training]
  torch::optim::SGD sgd(net->parameters(), 0.5);
  // hvd.DistributedOptimizer and hvd.broadcast_parameters; DistributedDataParallel(net)
  trireme::DataParallel parallel(job, *net, sgd, {.compression = "bf16"});
  for (int step = 0; step < 200; ++step) {
    const auto [x, y] = points(job.rank() * 64 / job.size(), 64 / job.size());  // this rank's part
    torch::mse_loss(net->forward(x), y).backward();
    parallel.step();  // optimizer.step(), optimizer.zero_grad(); gradients are averaged
  }
  // [/training]
  return net->weight.item<double>();
}

float collectives(trireme::Job& job) {
  // [collectives]
  std::vector<float> loss{static_cast<float>(job.rank())};
  trireme::all_reduce(job.world(), loss, trireme::Mean);  // hvd.allreduce: Horovod averages

  std::vector<float> a{1, 2}, b{3};  // hvd.grouped_allreduce
  const trireme::Buffer both[] = {trireme::buffer_of(a), trireme::buffer_of(b)};
  job.world().all_reduce_many(both, trireme::Sum).wait();
  // [/collectives]
  return loss[0] + b[0];
}

int process_sets(trireme::Job& job) {
  std::vector<std::int32_t> members{1};
  // [process_sets]
  // hvd.ProcessSet([0, 1]): its members call it, the others do not
  const std::vector<int> first_two{0, 1};
  if (job.size() > 1 && job.rank() < 2) {
    auto pair = job.world().subgroup(first_two, "first two");
    trireme::all_reduce(*pair, members, trireme::Sum);
  }
  // [/process_sets]
  return members[0];
}

}  // namespace

int main(int argc, char** argv) {
  // [main]
  trireme::Job job(argc, argv);  // hvd.init(); torch.distributed.init_process_group()
  // [/main]
  const double slope = training(job);
  const float reduced = collectives(job);
  const int members = process_sets(job);
  std::printf("rank %d of %d: slope %.1f, reduced %g, in my set %d\n", job.rank(), job.size(),
              slope, reduced, members);
}
