#include "trireme/base/config/config_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

config::Schema timed_schema() {
  config::Schema schema;
  schema.add({"train.steps", std::int64_t{10}, "Steps."});
  schema.add({"train.learning_rate", 0.1, "Rate."});
  schema.add({"timeout", 30.0, "Seconds."});
  schema.add({"timeout.user_code", 30.0, "Seconds."});
  return schema;
}

std::string refusal(const std::string& name) {
  try {
    config::check_variables(timed_schema(), {"HOME", name});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigVariables, AnUnknownKeyIsRefusedWithTheNearest) {
  EXPECT_THAT(refusal("TRIREME_TRAIN_STEP"),
              AllOf(HasSubstr("TRIREME_TRAIN_STEP: there is no key train.step"),
                    HasSubstr("Did you mean train.steps?")));
  EXPECT_THAT(refusal("TRIREME_TRAIN_LEARNINGRATE"), HasSubstr("train.learning_rate?"));
  EXPECT_THAT(refusal("TRIREME_TIMEOUT_USERCODE"), HasSubstr("timeout.user_code?"));
}

TEST(ConfigVariables, KeysAndOthersVariablesAreLeftAlone) {
  for (const char* name :
       {"TRIREME_TRAIN_STEPS", "TRIREME_TRAIN_LEARNING_RATE", "TRIREME_TIMEOUT",
        "TRIREME_TIMEOUT_USER_CODE", "TRIREME_RANK", "TRIREME_TRAINER", "TRIREME_", "TRAIN_STEP"})
    EXPECT_EQ(refusal(name), "") << name;
}

TEST(ConfigVariables, TheNamesAreThoseOfThisProcess) {
  ASSERT_EQ(setenv("TRIREME_OF_THIS_TEST", "a=b", 1), 0);
  EXPECT_THAT(config::environment_names(), Contains("TRIREME_OF_THIS_TEST"));
}

}  // namespace
}  // namespace trireme
