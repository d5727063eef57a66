#include "trireme/train/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

config::Config with(const std::vector<std::string>& assignments) {
  return train::read_config(
      "", [](const char*) { return nullptr; }, assignments);
}

std::string refusal(const std::vector<std::string>& assignments) {
  try {
    train::Settings settings(with(assignments));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Settings, DefaultsAreValid) {
  const train::Settings settings(with({}));
  EXPECT_EQ(settings.model.width % settings.model.heads, 0);
  EXPECT_EQ(settings.batches.batch % settings.batches.micro, 0);
}

TEST(Settings, ValuesArriveWhereTheyBelong) {
  const train::Settings settings(
      with({"train.beta2=0.95", "train.seed=7", "train.precision=bf16", "timeout=2",
            "train.final_learning_rate=0.5", "comm.algorithm=ring", "train.clip=0.25"}));
  EXPECT_EQ(settings.optimizer.beta2, 0.95);
  EXPECT_EQ(settings.model.seed, 7u);
  EXPECT_EQ(settings.batches.seed, 7u);
  EXPECT_EQ(settings.strategy.seed, 7u);
  EXPECT_EQ(settings.model.precision, "bf16");
  EXPECT_EQ(settings.strategy.precision, "bf16");
  EXPECT_EQ(settings.job.timeout, std::chrono::seconds(2));
  EXPECT_EQ(settings.schedule.final_rate, 0.5);
  EXPECT_EQ(settings.job.algorithm, "ring");
  EXPECT_EQ(settings.strategy.clip, 0.25);
}

TEST(Settings, WhatARankComputesWithReachesIt) {
  const train::Settings settings(
      with({"train.lanes=3", "train.kernel_table=a.toml", "model.dropout=0.25"}));
  EXPECT_EQ(settings.strategy.lanes, 3);
  EXPECT_EQ(settings.kernel_table, "a.toml");
  EXPECT_EQ(settings.model.dropout, 0.25);
}

TEST(Settings, HeadsMustDivideTheWidth) {
  EXPECT_THAT(refusal({"model.width=130", "model.heads=4"}),
              AllOf(HasSubstr("130 / 4"), HasSubstr("leaves 2")));
}

TEST(Settings, WhatDecidesTheBitsIsTheIdentity) {
  const std::string base = with({}).identity();
  for (const char* change :
       {"train.seed=9", "batch.micro=2", "train.precision=bf16", "train.kernel_threads=2",
        "train.beta2=0.5", "model.layers=2", "model.dropout=0.1"}) {
    EXPECT_NE(with({change}).identity(), base) << change;
  }
  for (const char* change :
       {"comm.algorithm=ring", "comm.transport=tcp", "comm.sockets=2", "timeout=5",
        "checkpoint.every=3", "comm.bucket_bytes=4096", "train.lanes=4"}) {
    EXPECT_EQ(with({change}).identity(), base) << change;
  }
}

TEST(Settings, WhatIsNotThereYetIsRefused) {
  EXPECT_THAT(refusal({"parallel.sync=gossip"}), HasSubstr("plain"));
  EXPECT_THAT(refusal({"parallel.pipeline=2"}), HasSubstr("out of range"));
  EXPECT_THAT(refusal({"memory.limit=1"}), HasSubstr("not in this release"));
}

}  // namespace
}  // namespace trireme
