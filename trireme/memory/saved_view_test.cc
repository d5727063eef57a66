#include "trireme/memory/saved_view.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace trireme::memory::saved_view_test {
namespace {

// Slots are storages' bytes, in the order in which they were stored.
class Stored {
 public:
  RecentSlots<std::size_t>::Kept keep(const at::Tensor& tensor) {
    return slots_.keep(tensor, [this](const at::Tensor& one) {
      bytes.push_back(one.storage().nbytes());
      return std::make_shared<std::size_t>(bytes.back());
    });
  }
  void forget_freed() { slots_.forget_freed(); }
  std::vector<std::size_t> bytes;

 private:
  RecentSlots<std::size_t> slots_;
};

const std::vector<std::size_t> kAPart = {256 * 64 * 4};

TEST(RecentSlots, WhatIsSavedTwiceIsStoredOnce) {
  const at::Tensor all = at::randn({4096, 64});
  for (const std::int64_t rows : {2, 256, 4096}) {  // a copy in memory, a copy's slot, the storage
    Stored stored;
    const auto first = stored.keep(all.narrow(0, 0, rows));
    stored.forget_freed();
    EXPECT_EQ(stored.keep(all.narrow(0, 0, rows)).held, first.held) << rows;
    EXPECT_EQ(stored.bytes.size(), rows == 2 ? 0U : 1U);
    EXPECT_EQ(first.held->copy.defined(), rows == 2);
  }
}

TEST(RecentSlots, OtherElementsAreStoredApart) {
  const at::Tensor all = at::randn({4096, 64}), part = all.narrow(0, 16, 256);
  Stored stored;
  const auto first = stored.keep(part);
  EXPECT_EQ(stored.bytes, kAPart);
  for (const at::Tensor& other :
       {all.narrow(0, 32, 256), part.view({64, 256}), part.t(), part.view(at::kInt)})
    EXPECT_NE(stored.keep(other).held, first.held) << other.sizes();
  const auto whole = stored.keep(all);
  EXPECT_EQ(stored.keep(part).held, whole.held);
}

TEST(RecentSlots, WhatChangedOrWasReleasedIsStoredAgain) {
  const at::Tensor all = at::randn({4096, 64}), part = all.narrow(0, 16, 256);
  Stored stored;
  const auto first = stored.keep(part);
  all.add_(1);
  auto second = stored.keep(part);
  EXPECT_NE(second.held, first.held);
  EXPECT_THROW(first.view.check(), c10::Error);
  EXPECT_EQ(stored.keep(part).held, second.held);
  EXPECT_EQ(stored.bytes.size(), 2U);
  second.held.reset();
  stored.keep(part);
  EXPECT_EQ(stored.bytes.size(), 3U);
}

}  // namespace
}  // namespace trireme::memory::saved_view_test
