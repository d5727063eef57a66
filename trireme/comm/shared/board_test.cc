#include "trireme/comm/shared/board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/utf8.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/comm/shared/arenas.h"

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

// Two ranks in one process, whose mappings are counted.
class Counted final : public net::HostMemory {
 public:
  explicit Counted(int rank) : own(rank) {}
  net::Region allocate(std::size_t bytes, std::span<const int>) override {
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    return {{next++}, *memory, memory};
  }
  bool can_map(int) const noexcept override { return true; }
  std::span<std::byte> map(int, net::RegionId region) override {
    mapped.insert(region.value);
    return memory;
  }
  void unmap(int peer, net::RegionId region) noexcept override {
    EXPECT_TRUE(peer == own || mapped.erase(region.value) == 1);
  }
  bool read(int, std::uintptr_t, std::span<std::byte>) override { return false; }
  void notify(int) noexcept override {}
  const int own;
  std::uint32_t next = 0;
  std::set<std::uint32_t> mapped;
  alignas(BoardMemory) std::byte memory[sizeof(BoardMemory)] = {};
};

TEST(Arenas, ThatAPeerHasFreedAreUnmapped) {
  Counted memory[2] = {Counted(0), Counted(1)};
  Arenas zero(memory[0], 0, 2, {}), one(memory[1], 1, 2, {});
  const auto allocate = [&](Arenas& arenas, bool board) {
    return board ? arenas.allocate_board() : arenas.allocate(100);
  };
  net::Region kept[2];
  for (int round = 0; round < 30; ++round) {
    std::byte payload[2][Envelope::kPayload];
    net::Region regions[2] = {allocate(zero, round == 0), allocate(one, round == 0)};
    zero.announce(regions[0], payload[0]);
    one.announce(regions[1], payload[1]);
    const std::byte* const announced[] = {payload[0], payload[1]};
    zero.map(regions[0], announced);
    one.map(regions[1], announced);
    Location place;
    EXPECT_TRUE(zero.locate(regions[0].bytes.data(), 10, place));
    EXPECT_EQ(place.arena, static_cast<std::uint32_t>(round));
    if (round == 5) std::copy(regions, regions + 2, kept);
  }
  EXPECT_EQ(memory[0].mapped, (std::set<std::uint32_t>{0, 5, 29}))
      << "the board, one that is kept, the last";
  zero.unmap_all();
  EXPECT_TRUE(memory[0].mapped.empty());
}

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

TEST(Board, ALongReasonIsCutBetweenCharacters) {
  Pair pair;
  Board zero = pair.board(0), one = pair.board(1);
  std::string name;
  for (int i = 0; i < 300; ++i) name += "ä";
  for (const char* before : {"", "x"}) {
    Pair other;
    Board from = other.board(0), to = other.board(1);
    from.abort(std::make_exception_ptr(PeerLost(before + name)), *other.waiter);
    const std::string text = describe(to.error_of(0)).sentence;
    EXPECT_TRUE(is_utf8(text)) << text;
    EXPECT_THAT(text, ::testing::HasSubstr("ä… ("));
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
