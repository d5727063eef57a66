#include "trireme/train/run/resume_changes.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"

namespace trireme::resume_changes_test {
namespace {

std::shared_ptr<const Dataset> text_of(std::int32_t tokens) {
  return TextDataset::fixed_windows(std::make_shared<std::vector<std::int32_t>>(tokens), 1);
}

Batches batches_over(std::int32_t tokens) {
  return {text_of(tokens), {.batch = 2, .micro = 1, .prefetch = 0}, 0, 1, RealWaiter::make()};
}

TEST(ChangedInput, GoesOnWithTheSameBatchOfOtherData) {
  Batches before = batches_over(9), now = batches_over(17);
  before.next();
  before.next();
  EXPECT_THROW(now.restored(before.metadata()), CheckpointError);
  train::ChangedInput(now).restored(before.metadata());
  EXPECT_EQ(now.next().step, 2);
}

TEST(ChangedInput, RefusesMetadataOfAnotherProgram) {
  Batches now = batches_over(9);
  for (const char* wrong : {"", "no json", "[]", "{}", R"({"position":-1})", R"({"position":"2"})"})
    EXPECT_THROW(train::ChangedInput(now).restored(wrong), CheckpointError) << wrong;
}

}  // namespace
}  // namespace trireme::resume_changes_test
