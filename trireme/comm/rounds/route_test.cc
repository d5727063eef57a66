#include "trireme/comm/rounds/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::comm {
namespace {

const Generator& generator_of(const char* all_reduce) {
  return find_algorithm(OpKind::AllReduce, all_reduce)->generator;
}

double factor_of_ring(int size) {  // terms sent, divided by 2(n-1) chunks per rank
  const Program program = record("ring", generator_of("ring"), size);
  std::size_t sent = 0;
  for (const Route& route : resolve("ring", program, layout_of(OpKind::AllReduce, size, size))) {
    sent += terms_sent(route);
  }
  return double(sent) / (2 * (size - 1) * size);
}

TEST(Route, RingForwardsWhatNumericsSays) {
  EXPECT_NEAR(factor_of_ring(2), 1.0, 0.005);
  EXPECT_NEAR(factor_of_ring(3), 1.17, 0.005);
  EXPECT_NEAR(factor_of_ring(4), 1.25, 0.005);
  EXPECT_NEAR(factor_of_ring(8), 1.57, 0.005);
}

TEST(Route, EveryAlgorithmReachesTheSum) {
  for (int kind = 0; kind <= static_cast<int>(OpKind::AllToAll); ++kind) {
    for (const AlgorithmEntry* entry : algorithms_of(static_cast<OpKind>(kind))) {
      for (int size = 2; size <= 9; ++size) {
        const bool reduces = entry->kind == OpKind::AllReduce || entry->kind == OpKind::Reduce;
        for (std::uint32_t total = 1; total <= (reduces ? 33u : 1u); ++total) {
          const int root = static_cast<int>(total) % size;
          const Program program = record(entry->name, entry->generator, size, root);
          EXPECT_NO_THROW(resolve(entry->name, program, layout_of(entry->kind, size, total, root)));
        }
      }
    }
  }
}

TEST(Route, WhatIsGivenIsHeldNoLonger) {
  const Program program = record(
      "give",
      [](Algorithm& a) {  // rank 0 gives its leaf to rank 1, then receives the sum
        a.chunks(1);
        auto first = a.round(), second = a.round();
        a.rank == 0 ? first.give(1, a.chunk(0)) : first.add_from(0, a.chunk(0));
        a.rank == 0 ? second.add_from(1, a.chunk(0)) : second.send(0, a.chunk(0));
      },
      2);
  const auto routes = resolve("give", program, layout_of(OpKind::AllReduce, 2, 2));
  EXPECT_TRUE(routes[0].rounds[0].sends[0].give);
  EXPECT_EQ(routes[0].rounds[1].begin, 1);
  EXPECT_EQ(routes[1].rounds[0].end, 0);
}

// An all-to-all on n ranks has n^2 chunks, so what is kept for each of them on each rank takes n^3.
TEST(Route, ARankKeepsOnlyTheChunksThatItDealsWith) {
  const int size = 128;
  const std::size_t own = 2 * size - 1;  // its row and its column
  for (const AlgorithmEntry* entry : algorithms_of(OpKind::AllToAll)) {
    std::size_t asked = 0;
    Layout layout = layout_of(OpKind::AllToAll, size, 1);
    layout.initial = [&, told = layout.initial](int rank, int chunk) {
      ++asked;
      return told(rank, chunk);
    };
    const Program program = record(entry->name, entry->generator, size);
    for (const Route& route : resolve(entry->name, program, layout)) {
      EXPECT_EQ(route.num_chunks, size * size);
      EXPECT_LE(route.initial.size(), own) << entry->name;
      EXPECT_EQ(route.wanted.size(), std::size_t{size}) << entry->name;
    }
    EXPECT_LE(asked, size * own) << entry->name;

    Program wrong = program;
    wrong.rounds_of_rank[0].push_back({.sends = {{.peer = 1}}, .receives = {}});
    try {
      resolve(entry->name, wrong, layout);
      ADD_FAILURE() << entry->name << " leaves a message unreceived";
    } catch (const RouteError& error) {
      for (const auto& held : error.state().held) EXPECT_LE(held.size(), own) << entry->name;
    }
  }
}

TEST(Route, AChunkMayGoOverARankThatNeitherHasNorNeedsIt) {
  const Program program = record(
      "forwards",
      [](Algorithm& a) {
        a.chunks(a.size * a.size);
        const auto of = [&](int from, int to) { return a.chunk(from * a.size + to); };
        a.round()
            .send(a.next(), of(a.rank, a.next()))
            .send(a.next(), of(a.rank, a.prev()))
            .copy_from(a.prev(), of(a.prev(), a.rank))
            .copy_from(a.prev(), of(a.prev(), a.next()));
        a.round().send(a.next(), of(a.prev(), a.next())).copy_from(a.prev(), of(a.next(), a.rank));
      },
      3);
  const auto routes = resolve("forwards", program, layout_of(OpKind::AllToAll, 3, 1));
  EXPECT_EQ(routes[1].rounds[1].sends[0].chunk, 0 * 3 + 2);
  EXPECT_EQ(terms_sent(routes[1]), 3u);
}

TEST(Route, OnlySiblingsAreMerged) {
  const Program program = record("ring", generator_of("ring"), 5);
  for (std::uint32_t total : {5u, 13u}) {
    for (const Route& route : resolve("ring", program, layout_of(OpKind::AllReduce, 5, total))) {
      for (const RouteRound& round : route.rounds) {
        for (const auto& chunk : round.merges) {
          for (const auto& [left, right] : chunk.merges) {
            EXPECT_EQ(kernel::sibling(left, total), right);
          }
        }
      }
    }
  }
}

std::string refusal(const Generator& generator, int size) {
  try {
    const Program program = record("mine", generator, size);
    resolve("mine", program, layout_of(OpKind::AllReduce, size, size));
  } catch (const ConfigError& error) {
    return error.message();
  }
  return "accepted";
}

TEST(Route, WrongProgramsAreRefusedBeforeTheyRun) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal([](Algorithm& a) { a.round().add_from(a.prev(), a.chunk(0)); }, 3),
              HasSubstr("rank 0 waits for ever in its round 1 for rank 2 to send chunk 0"));
  EXPECT_THAT(refusal(
                  [](Algorithm& a) {  // a deadlock: every send waits for a receive that comes later
                    a.send(a.next(), a.chunk(0));
                    a.round().add_from(a.prev(), a.chunk(0));
                  },
                  2),
              HasSubstr("rank 0 waits for ever in its round 1 for rank 1 to receive chunk 0"));
  EXPECT_THAT(refusal(
                  [](Algorithm& a) {
                    auto round = a.round();
                    for (int i : {0, 1}) {
                      round.send(1 - a.rank, a.chunk(i)).add_from(1 - a.rank, a.chunk(1 - i));
                    }
                  },
                  2),
              HasSubstr("takes chunk 1 from rank 0, whose next message is chunk 0"));
  EXPECT_THAT(refusal([](Algorithm& a) { a.send(a.next(), a.chunk(0)); }, 3),
              HasSubstr("without the whole sum"));
  EXPECT_THAT(refusal(
                  [](Algorithm& a) {
                    for (int i = 0; i < 2; ++i) {
                      a.send(a.next(), a.chunk(0)).add_from(a.prev(), a.chunk(0));
                    }
                  },
                  3),
              HasSubstr("twice"));
  EXPECT_THAT(refusal([](Algorithm& a) { a.send(a.rank, a.chunk(0)); }, 3),
              HasSubstr("names peer 0"));
  EXPECT_THAT(refusal([](Algorithm& a) { a.send(a.next(), Chunk{3}); }, 3),
              HasSubstr("rank 0 names chunk 3, but chunks are 0 to 2"));
  EXPECT_THAT(refusal(
                  [](Algorithm& a) {
                    a.chunks(a.size / 4);
                    a.send(a.next(), a.chunk(a.rank)).add_from(a.prev(), a.chunk(a.rank - 1));
                  },
                  3),
              HasSubstr("rank 0 uses 0 chunks"));
  EXPECT_THAT(
      refusal([](Algorithm& a) { a.send(a.next(), a.chunk(0)).copy_from(a.prev(), a.chunk(0)); },
              2),
      HasSubstr("while it sends it"));
  EXPECT_THAT(refusal(
                  [](Algorithm& a) {
                    generator_of("naive")(a);
                    a.send(a.next(), a.chunk(0));
                  },
                  2),
              HasSubstr("never receives"));
}

}  // namespace
}  // namespace trireme::comm
