#include "trireme/train/plan/job_plan.h"

#include <gtest/gtest.h>

namespace trireme::job_plan_test {
namespace {

std::string transport_on_gpus(const std::vector<std::string>& values) {
  train::Settings settings(train::read_config(
      "", [](const char*) { return nullptr; }, values));
  settings.device_kind = "cuda";
  input::Corpus corpus;
  corpus.train = corpus.validation = std::string(10'000, 'a');
  return train::plan_training(settings, corpus, "test", 2, nullptr).job.transport;
}

TEST(JobPlan, RanksOnGpusMeetByNcclUnlessTheyMayLeave) {
  EXPECT_EQ(transport_on_gpus({}), "nccl");
  EXPECT_EQ(transport_on_gpus({"elastic.min=1"}), "auto");
  EXPECT_EQ(transport_on_gpus({"comm.transport=shm"}), "shm");
}

}  // namespace
}  // namespace trireme::job_plan_test
