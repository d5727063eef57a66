#include "trireme/strategy/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/job/job.h"
#include "trireme/models/models.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::named_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(NamedStrategy, SetsItsOptionsAndKeepsTheOthers) {
  const StrategyOptions fsdp = strategy_options("FullyShardedDataParallel", {.clip = 0.5});
  EXPECT_EQ(fsdp.sync, "zero3");
  EXPECT_EQ(fsdp.clip, 0.5);
  EXPECT_EQ(strategy_options("GPipe", {.pipeline = 4}).pipeline, 4);
  EXPECT_EQ(strategy_options("GPipe").schedule, "gpipe");
  EXPECT_EQ(strategy_options("megatron").tensor, 2);
}

TEST(NamedStrategy, TakesAStalenessOfZeroAsItIsWritten) {
  EXPECT_EQ(strategy_options("ParameterServer").server.staleness, -1);
  for (const std::int64_t staleness : {0, 4}) {
    const auto given = strategy_options("ParameterServer", {.server = {.staleness = staleness}});
    EXPECT_EQ(given.sync, "server");
    EXPECT_EQ(given.server.staleness, staleness);
  }
  EXPECT_FALSE(strategy_options("CentralStorage").server.alone());
}

TEST(NamedStrategy, RefusesWhatContradictsIt) {
  EXPECT_THAT(refusal([] { strategy_options("ZeRO1", {.sync = "zero2"}); }),
              AllOf(HasSubstr("parallel.sync = \"zero2\" (StrategyOptions)"),
                    HasSubstr("parallel.strategy = \"ZeRO1\"")));
  EXPECT_THAT(refusal([] { strategy_options("TPUStrategy"); }), HasSubstr("no TPU device"));
}

TEST(NamedStrategy, IsBuiltForTheJobsRanks) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    Job job(rank.transport, {}, nullptr);  // each rank is a host
    const models::Blocks model = models::make_mlp({.widths = {3, 2}});
    const auto built = strategy("multi_worker_mirrored", job, model, {}, Sgd{});
    EXPECT_EQ(built->num_parameters(), 3 * 2 + 2);
    EXPECT_THAT(refusal([&] { strategy("MirroredStrategy", job, model, {}, Sgd{}); }),
                HasSubstr("is for one host, and the job has 2"));
    EXPECT_THAT(refusal([&] { strategy("OneDevice", job, model, {}, Sgd{}); }),
                HasSubstr("is for one rank, and the job has 2"));
  });
}

}  // namespace
}  // namespace trireme::named_test
