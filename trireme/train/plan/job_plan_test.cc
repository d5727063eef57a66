#include "trireme/train/plan/job_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/plan/named_strategies.h"

namespace trireme::job_plan_test {
namespace {

plan::PlannedJob job_of(const std::vector<std::string>& values, const std::string& device = "cpu",
                        int ranks = 2) {
  train::Settings settings(train::read_config(
      "", [](const char*) { return nullptr; }, values));
  settings.device_kind = device;
  input::Corpus corpus;
  corpus.train = corpus.validation = std::string(4 * 3073, '\1');  // text, or four images
  return train::plan_training(settings, corpus, "test", ranks, ranks).job;
}

std::string transport_on_gpus(const std::vector<std::string>& values) {
  return job_of(values, "cuda").transport;
}

TEST(JobPlan, RanksOnGpusMeetByNcclUnlessTheyMayLeave) {
  EXPECT_EQ(transport_on_gpus({}), "nccl");
  EXPECT_EQ(transport_on_gpus({"elastic.min=1"}), "auto");
  EXPECT_EQ(transport_on_gpus({"comm.transport=shm"}), "shm");
}

TEST(JobPlan, GraphsOfEveryModelArePlanned) {
  EXPECT_TRUE(job_of({"train.graphs=true"}, "cuda").graphs);
  EXPECT_TRUE(job_of({"train.graphs=true", "model.name=resnet18", "model.width=4"}, "cuda").graphs);
}

TEST(JobPlan, StateInAFolderIsPlannedThere) {
  const std::string folder = "memory.offload=" + ::testing::TempDir();
  const plan::PlannedJob fp32 = job_of({folder, "train.ema=0.9"});
  EXPECT_EQ(fp32.moments_on_host, 3);  // and the average
  EXPECT_FALSE(fp32.weights_on_host);
  for (const char* one : {"train.precision=bf16", "parallel.sync=zero3"})
    EXPECT_TRUE(job_of({folder, one}).weights_on_host) << one;
  EXPECT_EQ(job_of({}).moments_on_host, 0);
}

TEST(JobPlan, LossyCompressionKeepsWhatItDoesNotSend) {
  for (const char* lossy : {"topk:0.01", "randomk:0.01", "powersgd:4", "onebit"})
    EXPECT_TRUE(job_of({std::string("comm.compression=") + lossy}).keeps_residual) << lossy;
  for (const char* whole : {"none", "auto", "bf16", "f16"})
    EXPECT_FALSE(job_of({std::string("comm.compression=") + whole}).keeps_residual) << whole;
}

// `trireme show strategies NAME` tells a reader to try it.
TEST(JobPlan, EveryNamedStrategyNeedsNoOtherKey) {
  for (const plan::NamedStrategy& one : plan::named_strategies()) {
    SCOPED_TRACE(one.name);
    if (!one.missing.empty()) continue;
    const plan::PlannedJob job =
        job_of({"parallel.strategy=" + one.name}, "cpu", one.most_ranks == 1 ? 1 : 2);
    EXPECT_EQ(job.servers > 0, one.servers > 0);
    EXPECT_EQ(job.data_ranks() == 1, one.same_batch || one.most_ranks == 1);
  }
}

TEST(JobPlan, RefusesWhatWorkersOfServersWouldRefuse) {
  const auto refusal = [](std::vector<std::string> values, int ranks) -> std::string {
    values.emplace_back("parallel.sync=server");
    try {
      job_of(values, "cpu", ranks);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "none";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal({"server.backup=2"}, 2), HasSubstr("but the job has 2 workers"));
  EXPECT_THAT(refusal({"server.backup=1", "server.staleness=1"}, 2), HasSubstr("staleness = 1"));
  EXPECT_THAT(refusal({"server.compensation=0.1"}, 2), HasSubstr("where no gradient is late"));
  EXPECT_THAT(refusal({"server.staleness=2", "batch.global=8", "batch.micro=2"}, 3),
              HasSubstr("batch.global 8 for 3 workers with batches of their own"));
  EXPECT_EQ(refusal({"server.staleness=2", "batch.global=8", "batch.micro=2"}, 4), "none");
}

// Weights, a sum, two moments; what is predicted or compensated takes more copies of the weights.
TEST(JobPlan, AServersMemoryCountsItsCopiesOfTheWeights) {
  const auto of_servers = [](std::vector<std::string> values) {
    values.insert(values.end(), {"parallel.sync=server", "model.layers=1", "model.heads=1",
                                 "model.width=256", "model.block=8"});
    return job_of(values);
  };
  const auto expect = [&](const std::vector<std::string>& values, double copies,
                          const std::string& words) {
    const plan::PlannedJob job = of_servers(values);
    const double bytes = 4 * static_cast<double>(job.parameters) * copies;
    EXPECT_EQ(job.exchange.beside, "1 process beside the ranks, with " + bytes_text(bytes) + words +
                                       ", besides the program");
  };
  const std::string state = " of weights, sums and optimizer state";
  expect({}, 4, state);
  expect({"server.staleness=4"}, 5, state);
  expect({"server.staleness=4", "server.prediction=false", "server.compensation=0.04"}, 6,
         state + ", and of the weights that each worker has");
  EXPECT_THAT(of_servers({"server.count=2", "server.replicas=2"}).exchange.beside,
              ::testing::HasSubstr("2 processes beside the ranks, each with "));
}

}  // namespace
}  // namespace trireme::job_plan_test
