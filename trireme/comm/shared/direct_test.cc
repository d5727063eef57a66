// Tests of direct collectives, over many seeds, and with memory that cannot be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/shared/direct_move.h"
#include "trireme/kernel/tree_sum.h"
#include "trireme/testing/faulty_transport.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::comm {
namespace {

using trireme::testing::RankContext;
using trireme::testing::run_ranks;

// A buffer in an arena or on the heap.
class Place {
 public:
  Place(Communicator& world, std::size_t count, bool arena) {
    arena_ = world.allocate(count * 4);  // on all ranks, even if not used
    if (!arena) heap_.resize(count);
    buffer_ = arena ? arena_.buffer(0, count, DType::F32) : buffer_of(heap_);
  }
  Buffer buffer(std::size_t begin, std::size_t count) const { return buffer_.slice(begin, count); }
  float* data() const { return static_cast<float*>(buffer_.data); }

 private:
  Arena arena_;
  std::vector<float> heap_;
  Buffer buffer_;
};

// Pieces of different sizes, one of them empty; rank r's input holds r * 1000 + index.
void move_pieces(Communicator& world, std::size_t count, bool arena) {
  const int size = world.size(), rank = world.rank(), root = int(count) % size;
  std::vector<std::size_t> counts, sends, receives, begins;
  std::size_t sum = 0;
  for (int r = 0; r < size; ++r) {
    begins.push_back(sum);
    counts.push_back(count * std::size_t(r));
    sum += counts.back();
    sends.push_back(count * std::size_t((rank + r) % 3));
    receives.push_back(sends.back());  // symmetric: as much from r as to r
  }
  const std::size_t own = counts[std::size_t(rank)];
  const std::size_t crossing = std::accumulate(sends.begin(), sends.end(), std::size_t{0});
  Place in(world, 4 * std::size_t(size) * count, arena),
      out(world, 4 * std::size_t(size) * count, arena);
  const auto fill = [&] {
    std::iota(in.data(), in.data() + 4 * std::size_t(size) * count, float(rank * 1000));
  };
  fill();
  world.gather_v(in.buffer(0, own), out.buffer(0, sum), counts, root).wait();
  for (int r = 0; r < size && rank == root; ++r) {
    for (std::size_t i = 0; i < counts[std::size_t(r)]; ++i) {
      ASSERT_EQ(out.data()[begins[std::size_t(r)] + i], float(r * 1000) + float(i));
    }
  }
  world.scatter_v(in.buffer(0, sum), out.buffer(0, own), counts, root).wait();
  for (std::size_t i = 0; i < own; ++i) {
    ASSERT_EQ(out.data()[i], float(root * 1000) + float(begins[std::size_t(rank)] + i));
  }
  world.all_to_all_v(in.buffer(0, crossing), out.buffer(0, crossing), sends, receives).wait();
  std::size_t at = 0;
  for (int from = 0; from < size; ++from) {
    std::size_t begin = 0;
    for (int r = 0; r < rank; ++r) begin += count * std::size_t((from + r) % 3);
    for (std::size_t i = 0; i < receives[std::size_t(from)]; ++i) {
      ASSERT_EQ(out.data()[at++], float(from * 1000) + float(begin + i)) << from;
    }
  }
  const std::size_t part = 2 * count, whole = part * std::size_t(size);
  world.all_to_all(in.buffer(0, whole), out.buffer(0, whole)).wait();
  for (std::size_t i = 0; i < whole; ++i) {
    ASSERT_EQ(out.data()[i], float(i / part * 1000) + float(std::size_t(rank) * part + i % part));
  }
  world.reduce(in.buffer(0, whole), out.buffer(0, whole), Sum, root).wait();
  for (std::size_t i = 0; i < whole && rank == root; ++i) {
    ASSERT_EQ(out.data()[i], float(1000 * (size * (size - 1) / 2)) + float(size) * float(i));
  }
  world.reduce_scatter_v(in.buffer(0, sum), out.buffer(0, own), counts, Max).wait();
  for (std::size_t i = 0; i < own; ++i) {
    ASSERT_EQ(out.data()[i], float((size - 1) * 1000) + float(begins[std::size_t(rank)] + i));
  }
}

// Rank r uses arenas if bit r of `arenas` is set.
void move_everything(Communicator& world, std::size_t count, unsigned arenas) {
  const int size = world.size(), rank = world.rank();
  const bool arena = (arenas >> rank & 1) != 0;
  const auto ranks = static_cast<std::size_t>(size);
  Place in(world, count * ranks, arena), out(world, count * ranks, arena),
      piece(world, count, arena);
  for (int root = 0; root < size; ++root) {
    std::fill_n(piece.data(), count, rank == root ? float(root + 5) : -1.0f);
    world.broadcast(piece.buffer(0, count), root).wait();
    ASSERT_EQ(std::count(piece.data(), piece.data() + count, float(root + 5)), long(count));
  }
  // Several at once: a rank may be two calls ahead of another.
  std::iota(in.data(), in.data() + count * ranks, float(rank));
  std::fill_n(piece.data(), count, float(rank));
  std::vector<float> sums(count);
  const Work works[] = {world.all_gather(piece.buffer(0, count), out.buffer(0, count * ranks)),
                        world.reduce_scatter(in.buffer(0, count * ranks), buffer_of(sums), Sum),
                        world.barrier()};
  Work::all(works).wait();
  for (std::size_t i = 0; i < count; ++i) {
    const float each = float(std::size_t(rank) * count + i);
    ASSERT_EQ(sums[i], each * float(size) + float(size * (size - 1) / 2));
  }
  for (std::size_t i = 0; i < count * ranks; ++i) ASSERT_EQ(out.data()[i], float(i / count));
  move_pieces(world, count, arena);
}

TEST(Direct, MovesInAnyMemoryOverSeeds) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const int size = std::vector{2, 3, 4, 5, 8}[seed % 5];
    run_ranks(size,
              [&](RankContext& rank) {
                for (const std::size_t count : {100u, 3001u, 20'001u}) {
                  const unsigned arenas = seed % 3 == 0 ? ~0u : unsigned(seed * 37);
                  move_everything(*rank.world, count, arenas);
                }
              },
              {.seed = seed});
  }
}

// A staging area has four slots of 128 KiB. Here slots are reused many times, and parts end in the
// middle of a slot.
TEST(Direct, MayBeNamed) {
  run_ranks(2, [](RankContext& rank) {
    std::vector<float> x(1000, float(rank.rank));
    rank.world->broadcast(buffer_of(x), 1, {.algorithm = "direct"}).wait();
    EXPECT_EQ(x[999], 1);
  });
}

TEST(Direct, MovesMoreThanAStagingAreaHolds) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    run_ranks(2 + int(seed % 3),
              [&](RankContext& rank) { move_everything(*rank.world, 150'001, seed % 4 == 0); },
              {.seed = seed});
  }
}

// An all_reduce over `total` leaves, each of which holds `value`.
struct LeafSum {
  LeafSum(const Communicator& world, std::uint32_t total, std::size_t count, float value)
      : total(total), out(count) {
    const auto share = kernel::contiguous_share(total, world.size(), world.rank());
    nodes = kernel::maximal_nodes(share, total);
    for (const kernel::LeafRange& node : nodes)
      values.emplace_back(count, value * static_cast<float>(node.count));
  }
  Work begin(Communicator& world) {
    std::vector<Term> terms;
    for (std::size_t i = 0; i < nodes.size(); ++i)
      terms.push_back({buffer_of(values[i]), nodes[i].first, nodes[i].count});
    return world.all_reduce(terms, total, buffer_of(out));
  }
  const std::uint32_t total;
  std::vector<kernel::LeafRange> nodes;
  std::vector<std::vector<float>> values;
  std::vector<float> out;
};

// The number of terms decides where a staging area holds the result. A rank whose call has ended
// must not stage the terms of the next one over a result that a peer has yet to copy.
TEST(Direct, SumsOfOneTwoAndThreeTermsFollowOneAnother) {
  constexpr std::size_t kCount = 262'144;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    run_ranks(
        3,
        [&](RankContext& rank) {
          std::vector<LeafSum> sums;
          for (const std::uint32_t total : {3u, 6u, 12u, 6u, 3u, 3u, 12u}) {
            sums.emplace_back(*rank.world, total, kCount, float(sums.size() + 1));
          }
          std::vector<Work> works;
          for (LeafSum& one : sums) works.push_back(one.begin(*rank.world));
          Work::all(works).wait();
          for (std::size_t i = 0; i < sums.size(); ++i) {
            const float wanted = float(i + 1) * float(sums[i].total);
            EXPECT_EQ(std::count(sums[i].out.begin(), sums[i].out.end(), wanted), long(kCount))
                << "sum " << i << ", rank " << rank.rank << ", seed " << seed;
          }
        },
        {.seed = seed});
  }
}

TEST(Direct, GatherInPlace) {
  run_ranks(3, [](RankContext& rank) {
    std::vector<float> all(3 * 500, -1.0f);
    std::fill_n(all.begin() + rank.rank * 500, 500, float(rank.rank));
    const Buffer out = buffer_of(all);
    rank.world->all_gather(out.slice(std::size_t(rank.rank) * 500, 500), out).wait();
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], float(i / 500));
  });
}

// A rank whose call has ended may leave at once, even if the others still run theirs.
TEST(Direct, WhoEndsFirstMayLeave) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    for (const bool gathers : {true, false}) {
      run_ranks(4,
                [&](RankContext& rank) {
                  std::vector<float> piece(3000, float(rank.rank)), all(12'000);
                  gathers ? gather(*rank.world, piece, all, 2)
                          : scatter(*rank.world, all, piece, 2);
                  rank.world.reset();
                },
                {.seed = seed});
    }
  }
}

// If one rank cannot read its peers' memory, no rank may use direct calls.
TEST(Direct, WhereOneRankCannotReadAllUseMessages) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const int size = 2 + int(seed % 3);
    run_ranks(size,
              [&](RankContext& rank) {
                auto transport = rank.transport;
                if (rank.rank == 1) {
                  transport = std::make_shared<testing::FaultyTransport>(
                      transport, [](auto, int) {},
                      testing::FaultyTransport::Options{.reads = false});
                }
                Communicator world(transport, {});
                move_everything(world, 3001, unsigned(seed));
                std::vector<float> x(70'000, 1.0f);
                all_reduce(world, x, Sum);
                ASSERT_EQ(x, std::vector<float>(70'000, float(size)));
              },
              {.seed = seed});
  }
}

// Ranks 1 and 2 of the world are ranks 0 and 1 of the group.
TEST(Direct, MemoryThatCannotBeReadIsNamedByItsRankInTheWorld) {
  run_ranks(3, [](RankContext& rank) {
    const auto transport = std::make_shared<testing::FaultyTransport>(
        rank.transport, [](auto, int) {},
        testing::FaultyTransport::Options{.reads_fail = rank.rank == 1});
    Communicator world(transport, {});
    const auto group = world.split(rank.rank == 0 ? 0 : 1, rank.rank);
    if (rank.rank == 0) return;
    std::vector<float> in(60'000, 1.0f), out(30'000);
    try {
      reduce_scatter(*group, in, out, Sum);
      ADD_FAILURE() << "rank " << rank.rank << " read all";
    } catch (const PeerLost& error) {
      if (rank.rank == 2) return;
      EXPECT_EQ(error.rank(), 1);
      EXPECT_EQ(error.peer(), 2);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("the memory of rank 2 "));
    }
  });
}

TEST(Direct, ARankThatGivesUpEndsTheMovesOfTheOthers) {
  std::atomic<int> seen{0};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    run_ranks(3,
              [&](RankContext& rank) {
                Communicator& world = *rank.world;
                const Place x(world, 30'000, seed % 2 == 0), all(world, 90'000, seed % 2 == 0);
                const Buffer one = x.buffer(0, 30'000), out = all.buffer(0, 90'000);
                if (rank.rank == 2) {
                  world.broadcast(one, 0).wait();
                  const Work unfinished = world.all_gather(one, out);
                  world.abort(std::make_exception_ptr(StepRefused("enough")));
                  std::fill_n(all.data(), 90'000, 1.0f);  // no peer writes here any more
                  ASSERT_EQ(std::count(all.data(), all.data() + 90'000, 1.0f), 90'000);
                  try {
                    unfinished.wait();  // does not throw if it had ended before
                  } catch (const StepRefused&) {
                  }
                  return;
                }
                try {
                  for (;;) {
                    world.broadcast(one, 0).wait();
                    world.all_gather(one, out).wait();
                  }
                } catch (const Error& error) {
                  ++seen;
                  EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 2")) << seed;
                }
              },
              {.seed = seed});
  }
  EXPECT_EQ(seen, 40);
}

}  // namespace
}  // namespace trireme::comm
