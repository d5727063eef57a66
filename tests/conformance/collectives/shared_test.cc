// Results that exist once per host: the same bits as collectives with a result on every rank, on
// every transport and from any memory; in one memory if the transport shares memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>
#include <vector>

#include "tests/conformance/collectives/groups.h"
#include "tests/conformance/collectives/leaves.h"
#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/shared/shared_result.h"

namespace trireme {
namespace {

using comm::Communicator;
using test::buffer_over, test::Bytes, test::kTypes, test::leaf;

Bytes bytes_of(const SharedResult& result, std::size_t count) {
  const auto* data = reinterpret_cast<const Bytes::value_type*>(result.bytes().data());
  return {data, data + count};
}

class Shared : public ::testing::TestWithParam<std::string> {
 protected:
  void run(int size, const std::function<void(Communicator&)>& body, std::uint64_t seed = 1,
           const std::string& algorithm = "auto") {
    test::run_group({GetParam(), algorithm, size, seed}, body);
  }
  bool one_memory() const { return GetParam() == "sim" || GetParam() == "shm"; }
};

void check_everything(Communicator& world, std::size_t count, bool in_arena) {
  const int size = world.size(), rank = world.rank();
  const std::size_t most = std::size_t(size) * count * 8;
  const SharedResult result = world.allocate_shared(most);
  const comm::Arena arena = world.allocate(most + 64);
  for (DType dtype : kTypes) {
    Bytes in = leaf(dtype, count, rank + 1), whole(in.size() * std::size_t(size));
    Buffer from = buffer_over(in, dtype);
    if (in_arena) {
      from = arena.buffer(0, count, dtype);
      std::copy_n(reinterpret_cast<const std::byte*>(in.data()), in.size(),
                  static_cast<std::byte*>(from.data));
    }
    const auto unchanged = [&] {
      return std::equal(in.begin(), in.end(), static_cast<const Bytes::value_type*>(from.data));
    };
    for (ReduceOp op : {Sum, Max}) {
      Bytes expected = in;
      world.all_reduce(buffer_over(expected, dtype), op).wait();
      world.all_reduce_shared(from, result, op).wait();
      ASSERT_EQ(bytes_of(result, in.size()), expected) << count << " " << name_of(dtype);
      ASSERT_TRUE(unchanged());
    }
    world.all_gather(buffer_over(in, dtype), buffer_over(whole, dtype)).wait();
    world.all_gather_shared(from, result).wait();
    ASSERT_EQ(bytes_of(result, whole.size()), whole) << count << " " << name_of(dtype);
    const int root = int(count) % size;
    world.broadcast_shared(from, result, root).wait();
    ASSERT_EQ(bytes_of(result, in.size()), leaf(dtype, count, root + 1));
    ASSERT_TRUE(unchanged());
  }
}

TEST_P(Shared, SameBitsAsEverybodysOwn) {
  for (int size : {1, 2, 3, 5}) {
    run(size, [&](Communicator& world) {
      for (std::size_t count : {0u, 1u, 7u, 4099u, 70'001u}) {
        check_everything(world, count, count % 2 == 1 && count != 7);
      }
    });
  }
}

// All of such a small result is rank 0's part, which it copies itself. The other ranks receive
// nothing and must not end before rank 0 has copied it.
TEST_P(Shared, WhatARankGivesItselfIsThereWhenOthersEnd) {
  const int calls = GetParam() == "shm" ? 10'000 : 100;
  run(3, [&](Communicator& world) {
    const SharedResult result = world.allocate_shared(64);
    int wrong = 0;
    for (int call = 1; call <= calls; ++call) {
      std::vector<float> own(4, world.rank() == 0 ? static_cast<float>(call) : 0.0f);
      world.broadcast_shared(Buffer::of(std::span(own)), result, 0).wait();
      for (std::size_t i = 0; i < own.size(); ++i)
        wrong += result.values<float>()[i] != static_cast<float>(call);
    }
    EXPECT_EQ(wrong, 0);
  });
}

TEST_P(Shared, WithoutDirectCalls) {
  run(
      3, [&](Communicator& world) { check_everything(world, 4099, false); }, 1, "ring");
}

// A rank may be late in reading: nothing is written before it has begun the next call.
TEST_P(Shared, AResultStandsUntilItsReadersCallAgain) {
  for (std::uint64_t seed = 1; seed <= (GetParam() == "sim" ? 50u : 2u); ++seed) {
    run(
        3,
        [&](Communicator& world) {
          const std::size_t count = 5000;
          const SharedResult result = world.allocate_shared(count * 4);
          std::vector<float> mine(count);
          for (int turn = 0; turn < 10; ++turn) {
            std::fill(mine.begin(), mine.end(), float(turn * (world.rank() + 1)));
            turn % 2 == 0 ? world.all_reduce_shared(buffer_of(mine), result, Sum).wait()
                          : world.broadcast_shared(buffer_of(mine), result, turn % 3).wait();
            const float expected = turn % 2 == 0 ? float(turn * 6) : float(turn * (turn % 3 + 1));
            if (world.rank() == turn % 3) world.waiter()->sleep(std::chrono::microseconds(300));
            for (const float value : result.values<float>()) ASSERT_EQ(value, expected);
          }
        },
        seed);
  }
}

// The rights, such as "r--s", of the mapping that begins at `address`.
std::string rights_at(const void* address) {
  char begin[32];
  std::snprintf(begin, sizeof begin, "%lx-", reinterpret_cast<unsigned long>(address));
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(begin)) return line.substr(line.find(' ') + 1, 4);
  }
  return "none";
}

TEST_P(Shared, OneMemoryThatNobodyWritesTo) {
  run(3, [&](Communicator& world) {
    SharedResult result = world.allocate_shared(1 << 20);
    EXPECT_EQ(result.shared(), one_memory());
    EXPECT_EQ(result.bytes().size(), std::size_t{1} << 20);
    if (GetParam() == "shm") {
      EXPECT_EQ(rights_at(result.bytes().data()), "r--s");
    }
    std::vector<float> x(1000, 1.0f);
    world.all_reduce_shared(buffer_of(x), result, Sum).wait();
    const SharedResult copy = result;
    result = {};
    EXPECT_EQ(copy.values<float>()[999], 3.0f);
    barrier(world);
  });
}

TEST_P(Shared, MistakesAreRefused) {
  run(2, [&](Communicator& world) {
    const SharedResult result = world.allocate_shared(100);
    std::vector<float> x(26);
    EXPECT_THROW((void)world.all_reduce_shared(buffer_of(x), result, Sum), ConfigError);
    EXPECT_THROW((void)world.all_gather_shared(buffer_of(x), result), ConfigError);
    EXPECT_THROW((void)world.broadcast_shared(buffer_of(x), SharedResult(), 0), ConfigError);
    barrier(world);
  });
}

TEST_P(Shared, AnotherCallIsAMismatch) {
  std::atomic<int> seen{0};
  run(2, [&](Communicator& world) {
    const SharedResult result = world.allocate_shared(40'000);
    std::vector<float> x(10'000);
    try {
      world.rank() == 0 ? world.all_reduce_shared(buffer_of(x), result, Sum).wait()
                        : world.all_reduce(buffer_of(x), Max).wait();
    } catch (const MismatchError&) {
      ++seen;
    }
  });
  EXPECT_EQ(seen, 2);
}

TEST_P(Shared, APeerThatLeavesEndsTheOthers) {
  std::atomic<int> seen{0};
  run(3, [&](Communicator& world) {
    const SharedResult result = world.allocate_shared(80'000);
    std::vector<float> x(20'000, 1.0f);
    world.all_reduce_shared(buffer_of(x), result, Sum).wait();
    if (world.rank() == 2) return;
    try {
      for (int i = 0; i < 2; ++i) world.all_reduce_shared(buffer_of(x), result, Sum).wait();
    } catch (const PeerLost&) {
      ++seen;
    }
  });
  EXPECT_EQ(seen, 2);
}

INSTANTIATE_TEST_SUITE_P(Transports, Shared, ::testing::Values("sim", "shm", "tcp", "mixed"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trireme
