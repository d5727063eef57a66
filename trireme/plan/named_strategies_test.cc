#include "trireme/plan/named_strategies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "trireme/base/error.h"

namespace trireme::named_strategies_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Values = std::map<std::string, config::Value>;

// The keys after `name` was expanded over those that the user has `given`.
Values expanded(const std::string& name, const Values& given = {}) {
  Values values = given;
  plan::expand(
      plan::find_strategy(name),
      {.value = [&](const std::string& key) { return values.at(key); },
       .source =
           [&](const std::string& key) {
             return std::string(given.contains(key) ? "job.toml:7" : "");
           },
       .set = [&](const std::string& key, const config::Value& value) { values[key] = value; }});
  return values;
}

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(NamedStrategies, AreFoundHoweverTheyAreWritten) {
  for (const char* name : {"MultiWorkerMirroredStrategy", "multi_worker_mirrored",
                           "MULTIWORKERMIRRORED", "ddp", "DistributedDataParallel"})
    EXPECT_EQ(plan::find_strategy(name).name, "MultiWorkerMirrored") << name;
  EXPECT_EQ(plan::find_strategy("zero-3").name, "ZeRO3");
  EXPECT_THAT(refusal([] { plan::find_strategy("Miror"); }),
              AllOf(HasSubstr("\"Miror\" names no strategy"), HasSubstr("Did you mean Mirrored?"),
                    HasSubstr("CentralStorage")));
  EXPECT_THAT(refusal([] { plan::find_strategy("Strategy"); }), HasSubstr("names no strategy"));
}

TEST(NamedStrategies, ANameIsOneStrategy) {
  for (const plan::NamedStrategy& one : plan::named_strategies()) {
    EXPECT_EQ(&plan::find_strategy(one.name + "Strategy"), &one);
    for (const std::string& other : one.others) EXPECT_EQ(&plan::find_strategy(other), &one);
  }
}

TEST(NamedStrategies, ServersAreExpandedLikeTheOthers) {
  EXPECT_EQ(expanded("ParameterServerStrategy"), (Values{{"parallel.sync", std::string("server")},
                                                         {"server.staleness", std::int64_t{-1}}}));
  EXPECT_EQ(
      expanded("ParameterServer", {{"server.staleness", std::int64_t{4}}}).at("server.staleness"),
      config::Value(std::int64_t{4}));
  EXPECT_EQ(expanded("central_storage").at("server.count"), config::Value(std::int64_t{1}));
}

TEST(NamedStrategies, DegreesAreKeptAndOthersContradict) {
  EXPECT_EQ(expanded("GPipe"), (Values{{"parallel.pipeline", std::int64_t{2}},
                                       {"parallel.schedule", std::string("gpipe")}}));
  EXPECT_EQ(expanded("Megatron", {{"parallel.tensor", std::int64_t{4}}}).at("parallel.tensor"),
            config::Value(std::int64_t{4}));
  EXPECT_THAT(refusal([] {
                expanded("Tensor", {{"parallel.tensor", std::int64_t{1}}});
              }),
              HasSubstr("parallel.tensor = 1 (job.toml:7) contradicts parallel.strategy = "
                        "\"Tensor\", which means parallel.tensor >= 2"));
  EXPECT_THAT(refusal([] {
                expanded("FSDP", {{"parallel.sync", std::string("zero1")}});
              }),
              HasSubstr("parallel.sync = \"zero1\" (job.toml:7) contradicts parallel.strategy = "
                        "\"ZeRO3\", which means parallel.sync = \"zero3\""));
}

TEST(NamedStrategies, ATpuIsMissingAndSaysWhatItWouldBe) {
  EXPECT_THAT(refusal([] { expanded("TPUStrategy"); }),
              AllOf(HasSubstr("LibTorch's wheel has no TPU device"), HasSubstr("PyTorch/XLA"),
                    HasSubstr("MultiWorkerMirrored"), HasSubstr("train.device = \"xla\"")));
}

TEST(NamedStrategies, SomeAreForOneRankOrOneHost) {
  plan::check_ranks(plan::find_strategy("OneDevice"), 1, 1);
  plan::check_ranks(plan::find_strategy("Mirrored"), 8, 1);
  EXPECT_THAT(refusal([] { plan::check_ranks(plan::find_strategy("OneDevice"), 2, 1); }),
              HasSubstr("is for one rank, and the job has 2"));
  EXPECT_THAT(refusal([] { plan::check_ranks(plan::find_strategy("Mirrored"), 2, 2); }),
              HasSubstr("is for one host, and the job has 2"));
}

}  // namespace
}  // namespace trireme::named_strategies_test
