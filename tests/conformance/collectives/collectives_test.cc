// One suite for every (algorithm, transport) pair. The reference gathers all leaves and adds them
// in the order of docs/numerics.md, in their own type. Algorithms come from the registry, so new
// ones are covered without a change; a new transport is one line below.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "tests/conformance/collectives/groups.h"
#include "tests/conformance/collectives/leaves.h"
#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme {
namespace {

using comm::Communicator;
using comm::Term;
using kernel::LeafRange;
using test::buffer_over, test::Bytes, test::kTypes, test::leaf, test::tree;

constexpr std::size_t kCounts[] = {0, 1, 7, 4096 + 3, 100'000};

struct Pair {
  std::string transport, algorithm;
};

class Collectives : public ::testing::TestWithParam<Pair> {
 protected:
  void run(int size, const std::function<void(Communicator&)>& body, std::uint64_t seed = 1) {
    test::run_group({GetParam().transport, GetParam().algorithm, size, seed}, body);
  }
};

struct Case {
  DType dtype;
  std::size_t count;
  ReduceOp op;
  std::vector<Bytes> leaves;
  Bytes expected;
};

std::vector<Case> plain_cases(int size) {
  std::vector<Case> cases;
  for (DType dtype : kTypes) {
    for (std::size_t count : kCounts) {
      if (count > 5000 && dtype != DType::F32 && dtype != DType::BF16) continue;
      std::vector<Bytes> leaves;
      for (int r = 0; r < size; ++r) leaves.push_back(leaf(dtype, count, r + 1));
      for (auto [op, combine] :
           {std::pair(Sum, kernel::Combine::Sum), std::pair(Min, kernel::Combine::Min),
            std::pair(Max, kernel::Combine::Max), std::pair(Product, kernel::Combine::Product)}) {
        if (op != Sum && count > 7) continue;
        cases.push_back(
            {dtype, count, op, leaves, tree(combine, dtype, leaves, {0, std::uint32_t(size)})});
      }
    }
  }
  return cases;
}

TEST_P(Collectives, PlainBuffersEqualTheReference) {
  for (int size : {1, 2, 3, 4, 5, 8}) {
    if (size > test::most_ranks(GetParam().transport)) continue;
    const std::vector<Case> cases = plain_cases(size);
    run(size, [&](Communicator& world) {
      for (const Case& one : cases) {
        Bytes mine = one.leaves[world.rank()];
        world.all_reduce(buffer_over(mine, one.dtype), one.op).wait();
        ASSERT_EQ(mine, one.expected) << name_of(one.dtype) << " " << one.count << " on " << size;
      }
    });
  }
}

// 1 ... 13 leaves over any number of ranks; some ranks hold several terms, some none. Once in the
// test's own memory, once in an arena.
TEST_P(Collectives, TermsEqualTheReference) {
  for (int size : {1, 2, 3, 5, 8}) {
    if (size > test::most_ranks(GetParam().transport)) continue;
    run(size, [&](Communicator& world) {
      comm::Arena arena = world.allocate(16 * 4160 * 4);
      for (std::uint32_t total = 1; total <= 13; ++total) {
        for (std::size_t count : {7u, 4096u + 3}) {
          for (bool in_arena : {false, true}) {
            std::vector<Bytes> leaves;
            for (std::uint32_t i = 0; i < total; ++i)
              leaves.push_back(leaf(DType::F32, count, i + 7));
            std::vector<Bytes> sums;
            sums.reserve(16);
            std::vector<Term> terms;
            const LeafRange share = kernel::contiguous_share(total, size, world.rank());
            for (const LeafRange& node : kernel::maximal_nodes(share, total)) {
              sums.push_back(tree(kernel::Combine::Sum, DType::F32, leaves, node));
              Buffer value = buffer_over(sums.back(), DType::F32);
              if (in_arena) {
                value = arena.buffer(terms.size() * 4160 * 4, count, DType::F32);
                std::memcpy(value.data, sums.back().data(), value.bytes());
              }
              terms.push_back({value, node.first, node.count});
            }
            Bytes own(count * 4);
            Buffer out = buffer_over(own, DType::F32);
            if (in_arena)
              out =
                  arena.buffer(terms.empty() ? 0 : (total % 2) * 15 * 4160 * 4, count, DType::F32);
            world.all_reduce(terms, total, out).wait();
            const Bytes expected = tree(kernel::Combine::Sum, DType::F32, leaves, {0, total});
            ASSERT_EQ(std::memcmp(out.data, expected.data(), expected.size()), 0)
                << total << " leaves of " << count << " on " << size << " arena " << in_arena;
          }
        }
      }
    });
  }
}

// The shares of the leaves change from call to call, as those of a rank that is slow for a while.
TEST_P(Collectives, TermsOfUnequalSharesEqualTheReference) {
  constexpr std::uint32_t kTotal = 16;
  for (int size : {2, 3, 5}) {
    if (size > test::most_ranks(GetParam().transport)) continue;
    run(size, [&](Communicator& world) {
      for (std::uint32_t first : {1u, 2u, 7u, 40u}) {
        std::vector<std::uint32_t> weights(static_cast<std::size_t>(size), 3);
        weights[first % weights.size()] = first;
        const kernel::LeafShares shares(kTotal, weights);
        for (std::size_t count : {3u, 4096u + 3}) {
          std::vector<Bytes> leaves, sums;
          for (std::uint32_t i = 0; i < kTotal; ++i)
            leaves.push_back(leaf(DType::F32, count, i + first));
          sums.reserve(kTotal);
          std::vector<Term> terms;
          for (const LeafRange& node :
               kernel::maximal_nodes(shares.of(size, world.rank()), kTotal)) {
            sums.push_back(tree(kernel::Combine::Sum, DType::F32, leaves, node));
            terms.push_back({buffer_over(sums.back(), DType::F32), node.first, node.count});
          }
          Bytes own(count * 4);
          const Buffer out = buffer_over(own, DType::F32);
          world.all_reduce(terms, shares, out).wait();
          const Bytes expected = tree(kernel::Combine::Sum, DType::F32, leaves, {0, kTotal});
          ASSERT_EQ(std::memcmp(out.data, expected.data(), expected.size()), 0)
              << first << " as a weight, " << count << " elements on " << size << " ranks";
        }
      }
    });
  }
}

TEST_P(Collectives, MeanIsTheSumDividedOnce) {
  for (int size : {1, 2, 3, 5}) {
    if (size > test::most_ranks(GetParam().transport)) continue;
    run(size, [&](Communicator& world) {
      for (std::size_t count : {1u, 5000u}) {
        std::vector<float> sum(count), mean(count);
        for (std::size_t i = 0; i < count; ++i) mean[i] = sum[i] = 0.1f * float(world.rank() + i);
        all_reduce(world, sum, Sum);
        all_reduce(world, mean, Mean);
        for (float& value : sum) value /= float(size);
        ASSERT_EQ(mean, sum);
      }
    });
  }
}

TEST_P(Collectives, ArenasAndOrdinaryMemoryMayMeet) {
  run(3, [&](Communicator& world) {
    comm::Arena arena = world.allocate(400'000);
    for (std::size_t count : {20u, 100'000u}) {
      std::vector<float> own(count, float(world.rank() + 1));
      Buffer buffer = buffer_of(own);
      if (world.rank() == 1) {
        buffer = arena.buffer(0, count, DType::F32);
        std::memcpy(buffer.data, own.data(), buffer.bytes());
      }
      world.all_reduce(buffer, Sum).wait();
      const auto* values = static_cast<const float*>(buffer.data);
      ASSERT_EQ(std::vector<float>(values, values + count), std::vector<float>(count, 6.0f));
    }
  });
}

TEST_P(Collectives, MovingOperations) {
  for (int size : {1, 2, 3, 5, 8}) {
    if (size > test::most_ranks(GetParam().transport)) continue;
    run(size, [&](Communicator& world) {
      for (std::size_t count : {0u, 1u, 7u, 4096u + 3, 30'000u}) {
        const int root = int(count) % size;
        std::vector<std::int32_t> x(count, world.rank() == root ? 5 : -1);
        broadcast(world, x, root);
        ASSERT_EQ(x, std::vector<std::int32_t>(count, 5));
        std::vector<float> in(count, float(world.rank())), out(count * size), piece(count), all;
        for (int r = 0; r < size; ++r) all.insert(all.end(), count, float(r));
        all_gather(world, in, out);
        ASSERT_EQ(out, all);
        reduce_scatter(world, out, piece, Sum);
        ASSERT_EQ(piece, std::vector<float>(count, float(world.rank() * size)));
        if (size > 1) {
          const int next = (world.rank() + 1) % size, prev = (world.rank() + size - 1) % size;
          const Work works[] = {world.send(buffer_of(in), next),
                                world.recv(buffer_of(piece), prev)};
          Work::all(works).wait();
          ASSERT_EQ(piece, std::vector<float>(count, float(prev)));
        }
      }
      std::vector<std::size_t> counts;
      std::vector<std::uint8_t> all;
      for (int r = 0; r < size; ++r) {
        counts.push_back(std::size_t(r) * 1777);
        all.insert(all.end(), counts.back(), std::uint8_t(r));
      }
      std::vector<std::uint8_t> in(counts[world.rank()], std::uint8_t(world.rank())),
          out(all.size());
      world.all_gather_v(buffer_of(in), buffer_of(out), counts).wait();
      ASSERT_EQ(out, all);
    });
  }
}

// Several staged pieces, blocks and segments; the last of each is shorter.
TEST_P(Collectives, LargeBuffers) {
  for (int size : {2, 3}) {
    run(size, [&](Communicator& world) {
      const std::size_t count = 1'200'001;
      comm::Arena arena = world.allocate(count * 4);
      std::vector<float> own(count);
      for (std::size_t i = 0; i < count; ++i) own[i] = float(i % 1000 + world.rank());
      Buffer shared = arena.buffer(0, count, DType::F32);
      std::memcpy(shared.data, own.data(), shared.bytes());
      const Work works[] = {async::all_reduce(world, own, Sum), world.all_reduce(shared, Sum)};
      Work::all(works).wait();
      const auto* in_arena = static_cast<const float*>(shared.data);
      for (std::size_t i = 0; i < count; ++i) {
        const auto expected = float(i % 1000 * size + size * (size - 1) / 2);
        ASSERT_EQ(own[i], expected) << i;
        ASSERT_EQ(in_arena[i], expected) << i;
      }
    });
  }
}

TEST_P(Collectives, AMismatchIsSeenByEveryRank) {
  std::atomic<int> seen{0};
  run(2, [&](Communicator& world) {
    std::vector<float> x(2000, 1.0f);
    try {
      all_reduce(world, x, world.rank() == 0 ? Sum : Max);
    } catch (const MismatchError& error) {
      ++seen;
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 0 called all_reduce(Sum, F32, 2000"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 called all_reduce(Max, F32, 2000"));
    }
    EXPECT_EQ(x, std::vector<float>(2000, 1.0f));
  });
  EXPECT_EQ(seen, 2);
}

TEST_P(Collectives, ADeadlineExpires) {
  std::atomic<int> seen{0};
  run(2, [&](Communicator& world) {
    std::vector<float> x(2000, 1.0f);
    if (world.rank() == 1) {  // is too late
      world.waiter()->sleep(std::chrono::milliseconds(400));
      EXPECT_ANY_THROW(all_reduce(world, x, Sum));
      return;
    }
    try {
      all_reduce(world, x, Sum, {.deadline = Deadline::in(std::chrono::milliseconds(100))});
    } catch (const TimeoutError& error) {
      ++seen;
      EXPECT_EQ(error.peer(), 1);
    }
    EXPECT_TRUE(world.failure());
  });
  EXPECT_EQ(seen, 1);
}

TEST_P(Collectives, APeerThatLeavesEndsTheOthers) {
  std::atomic<int> seen{0};
  run(3, [&](Communicator& world) {
    comm::Arena arena = world.allocate(80'000);
    Buffer x = arena.buffer(0, 20'000, DType::F32);
    world.all_reduce(x, Sum).wait();
    if (world.rank() == 2) return;
    const TimePoint start = world.waiter()->now();
    try {
      for (int i = 0; i < 2; ++i) world.all_reduce(x, Sum).wait();
    } catch (const PeerLost& error) {
      ++seen;
      EXPECT_LT(world.waiter()->now() - start, std::chrono::seconds(2));
    }
  });
  EXPECT_EQ(seen, 2);
}

TEST_P(Collectives, ManyUnderWayInAnyMemory) {
  run(2, [&](Communicator& world) {
    comm::Arena arena = world.allocate(1 << 20);
    std::vector<std::vector<float>> x;
    std::vector<Work> works;
    for (int i = 0; i < 200; ++i) x.emplace_back(1 + i * 97, float(i + world.rank()));
    for (int i = 0; i < 200; ++i) {
      works.push_back(async::all_reduce(world, x[i], Sum));
      if (i % 3 == 0) works.push_back(world.barrier());
      if (i % 50 == 0)
        works.push_back(world.all_reduce(arena.buffer(0, 1000 + i, DType::F32), Sum));
    }
    Work::all(works).wait();
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(x[i], std::vector<float>(x[i].size(), float(2 * i + 1)));
    }
  });
}

// The seed decides which rank runs next on the simulated network, and each message's delay.
TEST(CollectivesOnSim, AHundredSeedsOfEveryAlgorithm) {
  std::vector<std::string> algorithms = {"direct"};
  for (const comm::AlgorithmEntry* entry : comm::algorithms_of(comm::OpKind::AllReduce)) {
    algorithms.push_back(entry->name);
  }
  for (const std::string& algorithm : algorithms) {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      const int size = 2 + int(seed % 7);
      test::run_group({"sim", algorithm, size, seed}, [&](Communicator& world) {
        comm::Arena arena = world.allocate(6000 * 4);
        std::vector<std::vector<float>> x;
        std::vector<Work> works;
        for (std::size_t count : {1u, 6000u, 300u, 5000u})
          x.emplace_back(count, float(world.rank()));
        Buffer shared = arena.buffer(0, 6000, DType::F32);
        std::fill_n(static_cast<float*>(shared.data), 6000, 1.0f);
        for (auto& one : x) works.push_back(async::all_reduce(world, one, Sum));
        works.push_back(world.all_reduce(shared, Sum));
        Work::all(works).wait();
        const float sum = float(size * (size - 1) / 2);
        for (auto& one : x) ASSERT_EQ(one, std::vector<float>(one.size(), sum)) << seed;
        ASSERT_EQ(static_cast<const float*>(shared.data)[5999], float(size)) << seed;
        barrier(world);
      });
    }
  }
}

// Large enough for several pieces per part, or several segments; the last is shorter.
TEST(CollectivesOnSim, PiecesAndSegments) {
  for (const comm::AlgorithmEntry* entry : comm::algorithms_of(comm::OpKind::AllReduce)) {
    for (int size : {2, 3}) {
      test::run_group({"sim", entry->name, size, 1}, [&](Communicator& world) {
        std::vector<float> x(3'000'001, 0.1f * float(world.rank() + 1)), expected(x.size());
        all_reduce(world, x, Sum);
        const float sum = size == 2 ? 0.1f + 0.2f : 0.1f + (0.2f + 0.1f * 3);
        std::fill(expected.begin(), expected.end(), sum);
        ASSERT_EQ(x, expected) << entry->name;
      });
    }
  }
}

TEST(CollectivesOnSim, SixteenRanks) {
  for (const comm::AlgorithmEntry* entry : comm::algorithms_of(comm::OpKind::AllReduce)) {
    std::vector<Bytes> leaves;
    for (int r = 0; r < 16; ++r) leaves.push_back(leaf(DType::F32, 5003, r));
    const Bytes expected = tree(kernel::Combine::Sum, DType::F32, leaves, {0, 16});
    test::run_group({"sim", entry->name, 16, 3}, [&](Communicator& world) {
      Bytes mine = leaves[world.rank()];
      world.all_reduce(buffer_over(mine, DType::F32), Sum).wait();
      ASSERT_EQ(mine, expected) << entry->name;
    });
  }
}

std::vector<Pair> pairs() {
  std::vector<Pair> all = {{"sim", "direct"}, {"shm", "direct"},         {"shm", "auto"},
                           {"tcp", "auto"},   {"mixed", "hierarchical"}, {"mixed", "auto"}};
  for (const comm::AlgorithmEntry* entry : comm::algorithms_of(comm::OpKind::AllReduce)) {
    for (const char* transport : {"sim", "shm", "tcp"}) all.push_back({transport, entry->name});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Pairs, Collectives, ::testing::ValuesIn(pairs()), [](const auto& info) {
  return info.param.transport + "_" + info.param.algorithm;
});

}  // namespace
}  // namespace trireme
