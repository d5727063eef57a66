// Memory shared by ranks, and waking a rank that watches it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "trireme/base/waiter.h"
#include "trireme/base/work_source.h"
#include "trireme/net/transport.h"

#include "suite.h"

namespace trireme::conformance {
namespace {

TYPED_TEST(Conformance, RegionsAreZeroedAndSharedWhereTheTransportCan) {
  TypeParam::run(3, [](Rank& rank) {
    constexpr std::size_t kSize = 100001;
    net::HostMemory* const memory = rank.transport->capabilities().memory;
    bool any = false;
    for (int peer = 0; peer < 3; ++peer) {
      any |= peer != rank.rank && TypeParam::maps(rank.rank, peer);
      EXPECT_EQ(memory != nullptr && memory->can_map(peer), TypeParam::maps(rank.rank, peer));
    }
    EXPECT_TRUE(memory != nullptr || !any);
    if (!memory) return;
    net::Region first, second;
    rank.in_context([&] {
      first = memory->allocate(kSize, {});
      second = memory->allocate(64, {});
    });
    EXPECT_EQ(first.id.value, 0u);
    EXPECT_EQ(second.id.value, 1u);
    ASSERT_EQ(first.bytes.size(), kSize);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.bytes.data()) % 4096, 0u);
    EXPECT_TRUE(std::all_of(first.bytes.begin(), first.bytes.end(),
                            [](std::byte byte) { return byte == std::byte{0}; }));
    first.bytes[kSize - 1] = static_cast<std::byte>(rank.rank + 1);
    rank.barrier();
    for (int peer = 0; peer < 3; ++peer) {
      std::span<std::byte> theirs;
      rank.in_context([&] { theirs = memory->map(peer, first.id); });
      const bool maps = TypeParam::maps(rank.rank, peer);
      EXPECT_EQ(theirs.size(), maps ? kSize : 0u);
      if (!maps) continue;
      EXPECT_EQ(theirs[kSize - 1], static_cast<std::byte>(peer + 1));
      theirs[static_cast<std::size_t>(rank.rank)] = std::byte{9};
    }
    rank.barrier();
    for (int i = 0; i < 3; ++i) {
      if (TypeParam::maps(rank.rank, i) && i != rank.rank) {
        EXPECT_EQ(first.bytes[static_cast<std::size_t>(i)], std::byte{9});
      }
    }
    rank.barrier();
  });
}

// Watches shared memory that a peer changes and announces with notify().
class Watcher final : public ProgressSource {
 public:
  Watcher(std::byte* cell, WorkSource source) : cell_(cell), source_(std::move(source)) {}
  bool poll() override {
    if (source_.settled() || std::atomic_ref(*cell_).load() == std::byte{0}) return false;
    source_.complete();
    return true;
  }
  bool pending() const noexcept override { return !source_.settled(); }
  int descriptor() const noexcept override { return -1; }
  void arm(bool) noexcept override {}

 private:
  std::byte* const cell_;
  const WorkSource source_;
};

TYPED_TEST(Conformance, NotifyWakesASleepingPeer) {
  if constexpr (TypeParam::kMaps) {
    TypeParam::run(2, [](Rank& rank) {
      net::Region region;
      rank.in_context([&] { region = rank.transport->capabilities().memory->allocate(4096, {}); });
      rank.barrier();
      std::span<std::byte> theirs;
      rank.in_context(
          [&] { theirs = rank.transport->capabilities().memory->map(1 - rank.rank, region.id); });
      int slow = 0;
      for (std::size_t round = 0; round < 100; ++round) {
        const WorkSource source(rank.waiter, nullptr, "watch");
        const auto watcher = std::make_shared<Watcher>(region.bytes.data() + round, source);
        rank.waiter->add(watcher);
        rank.waiter->sleep(rank.rank == 0 ? 200us : 0us);
        std::atomic_ref(theirs[round]).store(std::byte{1});
        rank.in_context([&] { rank.transport->capabilities().memory->notify(1 - rank.rank); });
        const TimePoint start = rank.waiter->now();
        source.work().wait(kSoon);
        slow += rank.waiter->now() - start > 80ms;
        rank.waiter->remove(watcher.get());
      }
      EXPECT_LE(slow, 2) << "notifications were lost";
      rank.barrier();
    });
  }
}

}  // namespace
}  // namespace trireme::conformance
