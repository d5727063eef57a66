#include "trireme/comm/shared/board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"

namespace trireme::comm {
namespace {

// The memory of one of two ranks; counts notifications.
class Half final : public net::HostMemory {
 public:
  net::Region allocate(std::size_t, std::span<const int>) override { return {}; }
  bool can_map(int) const noexcept override { return false; }
  std::span<std::byte> map(int, net::RegionId) override { return {}; }
  void unmap(int, net::RegionId) noexcept override {}
  bool read(int, std::uintptr_t, std::span<std::byte>) override { return false; }
  void notify(int) noexcept override { ++notified; }
  std::atomic<int> notified{0};
};

struct Pair {
  std::shared_ptr<Waiter> waiter = RealWaiter::make();
  std::unique_ptr<BoardMemory> memory[2] = {std::make_unique<BoardMemory>(),
                                            std::make_unique<BoardMemory>()};
  Half halves[2];
  Board board(int rank) { return Board(halves[rank], rank, {memory[0].get(), memory[1].get()}); }
};

TEST(Board, OneThatGoesWhenAllIsDoneGivesNothingUp) {
  Pair pair;
  Board zero = pair.board(0), one = pair.board(1);
  zero.own().complete = 1;
  zero.abort(std::make_exception_ptr(PeerLost("rank 0 has left world")), *pair.waiter);
  EXPECT_EQ(one.first_aborted(), 0);
  EXPECT_EQ(one.first_given_up(), -1);
}

TEST(Board, AbortTellsWhyAndWho) {
  Pair pair;
  Board zero = pair.board(0), one = pair.board(1);
  EXPECT_EQ(one.first_aborted(), -1);
  zero.abort(std::make_exception_ptr(TimeoutError("waited 3 s for rank 7", {.peer = 7})),
             *pair.waiter);
  EXPECT_EQ(pair.halves[0].notified, 1);
  EXPECT_EQ(one.first_aborted(), 0);
  EXPECT_EQ(one.first_given_up(), 0);
  EXPECT_EQ(zero.first_aborted(), -1);  // does not count itself
  try {
    std::rethrow_exception(one.error_of(0));
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.peer(), 7);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 0 gave up: waited 3 s for rank 7"));
  }
}

TEST(Board, AbortReturnsOnlyWhenNoPeerWrites) {
  Pair pair;
  Board zero = pair.board(0);
  pair.memory[1]->writing.store(5);
  std::atomic<bool> ended{false};
  std::thread peer([&] {  // checks `aborted` between blocks, as DirectBase::write_blocks does
    while (!pair.memory[0]->aborted.load()) std::this_thread::yield();
    ended = true;
    pair.memory[1]->writing.store(0);
  });
  zero.abort(std::make_exception_ptr(PeerLost("gone")), *pair.waiter);
  EXPECT_TRUE(ended);
  peer.join();
}

TEST(Board, AbortDoesNotWaitForEverForAStoppedPeer) {
  Pair pair;
  Board zero = pair.board(0);
  pair.memory[1]->writing.store(5);
  const TimePoint start = steady_now();
  zero.abort(std::make_exception_ptr(PeerLost("gone")), *pair.waiter);
  EXPECT_GE(steady_now() - start, std::chrono::milliseconds(400));
  EXPECT_LT(steady_now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace trireme::comm
