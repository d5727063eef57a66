// The collectives with a root or with a piece per rank, the fused and the uneven ones: one suite
// over every (collective, algorithm, transport), with the algorithms of the registry. The reference
// is computed from all ranks' leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <string>
#include <vector>

#include "tests/conformance/collectives/groups.h"
#include "tests/conformance/collectives/leaves.h"
#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme {
namespace {

using comm::Communicator;
using comm::OpKind;
using test::buffer_over, test::Bytes, test::kTypes, test::leaf, test::tree;
using ::testing::HasSubstr;
using Counts = std::vector<std::size_t>;

struct Param {
  std::string transport;
  OpKind kind;
  std::string algorithm;
};

constexpr std::pair<ReduceOp, kernel::Combine> kOps[] = {{Sum, kernel::Combine::Sum},
                                                         {Min, kernel::Combine::Min},
                                                         {Max, kernel::Combine::Max},
                                                         {Product, kernel::Combine::Product}};

Bytes part_of(const Bytes& all, std::size_t begin, std::size_t count, DType dtype) {
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(begin * size_of(dtype));
  return {at, at + static_cast<std::ptrdiff_t>(count * size_of(dtype))};
}

// Uneven pieces: some empty, some too small to be cut into cache lines.
Counts uneven(int size, std::size_t unit, int turn = 0) {
  Counts counts;
  for (int r = 0; r < size; ++r) counts.push_back(unit * static_cast<std::size_t>((r + turn) % 3));
  return counts;
}

std::size_t sum(const Counts& counts, int end) {
  return std::accumulate(counts.begin(), counts.begin() + end, std::size_t(0));
}

class Primitives : public ::testing::TestWithParam<Param> {
 protected:
  std::vector<int> sizes() const {
    std::vector<int> sizes;
    for (int size : {1, 2, 3, 4, 5, 8}) {
      if (size <= test::most_ranks(GetParam().transport)) sizes.push_back(size);
    }
    return sizes;
  }
  void run(int size, const std::function<void(Communicator&)>& body, std::uint64_t seed = 1) {
    test::run_group({GetParam().transport, "auto", size, seed}, body);
  }
  comm::OpOptions options() const { return {.algorithm = GetParam().algorithm}; }
};

void check_reduce(Communicator& world, const comm::OpOptions& options) {
  const int size = world.size();
  for (DType dtype : kTypes) {
    for (std::size_t count : {0u, 1u, 7u, 4099u}) {
      const int root = int(count) % size;
      std::vector<Bytes> leaves;
      for (int r = 0; r < size; ++r) leaves.push_back(leaf(dtype, count, r + 1));
      for (const auto& [op, combine] : kOps) {
        Bytes in = leaves[world.rank()], out(world.rank() == root ? in.size() : 0);
        world.reduce(buffer_over(in, dtype), buffer_over(out, dtype), op, root, options).wait();
        ASSERT_EQ(in, leaves[world.rank()]);
        if (world.rank() == root) {
          ASSERT_EQ(out, tree(combine, dtype, leaves));
        }
        if (world.rank() == root) out = in;  // in place
        Buffer same = buffer_over(world.rank() == root ? out : in, dtype);
        world.reduce(same, same, op, root, options).wait();
        if (world.rank() == root) {
          ASSERT_EQ(out, tree(combine, dtype, leaves));
        }
      }
    }
  }
}

void check_reduce_scatter(Communicator& world, const comm::OpOptions& options) {
  const int size = world.size(), rank = world.rank();
  for (DType dtype : kTypes) {
    for (std::size_t unit : {0u, 1u, 7u, 1500u}) {
      for (const Counts& counts : {uneven(size, unit), Counts(size, unit)}) {
        std::vector<Bytes> leaves;
        for (int r = 0; r < size; ++r) leaves.push_back(leaf(dtype, sum(counts, size), r + 1));
        const Bytes expected = part_of(tree(kernel::Combine::Sum, dtype, leaves), sum(counts, rank),
                                       counts[rank], dtype);
        Bytes in = leaves[rank], out(expected.size());
        world
            .reduce_scatter_v(buffer_over(in, dtype), buffer_over(out, dtype), counts, Sum, options)
            .wait();
        ASSERT_EQ(out, expected);
        ASSERT_EQ(in, leaves[rank]);
      }
      const Counts counts(size, unit);
      Bytes in = leaf(dtype, sum(counts, size), rank), same = in;
      Bytes out(unit * size_of(dtype)), as_v = out;
      const auto buffer = [&](Bytes& bytes) { return buffer_over(bytes, dtype); };
      world.reduce_scatter(buffer(in), buffer(out), Sum, options).wait();
      world.reduce_scatter_v(buffer(same), buffer(as_v), counts, Sum, options).wait();
      ASSERT_EQ(out, as_v);
    }
  }
}

// Gather, then scatter of the gathered pieces; also all_gather.
void check_pieces(Communicator& world, OpKind kind, const comm::OpOptions& options) {
  const int size = world.size(), rank = world.rank();
  for (DType dtype : {DType::F64, DType::BF16, DType::I16, DType::U8}) {
    for (std::size_t unit : {0u, 1u, 5u, 3000u}) {
      const int root = int(unit) % size;
      for (const Counts& counts : {uneven(size, unit, 1), Counts(size, unit)}) {
        const Bytes all = leaf(dtype == DType::I16 ? DType::F16 : dtype, sum(counts, size), unit);
        Bytes piece = part_of(all, sum(counts, rank), counts[rank], dtype);
        const Bytes expected = piece;
        Bytes whole(all.size()), nothing;
        Buffer small = buffer_over(piece, dtype), big = buffer_over(whole, dtype);
        if (kind == OpKind::AllGather) {
          world.all_gather_v(small, big, counts, options).wait();
          ASSERT_EQ(whole, all);
        } else if (kind == OpKind::Gather) {
          if (rank != root) big = buffer_over(nothing, dtype);
          world.gather_v(small, big, counts, root, options).wait();
          ASSERT_EQ(whole, rank == root ? all : Bytes(all.size()));
        } else {
          whole = all;
          if (rank != root) big = buffer_over(nothing, dtype);
          std::fill(piece.begin(), piece.end(), std::byte{7});
          world.scatter_v(big, small, counts, root, options).wait();
          ASSERT_EQ(piece, expected);
        }
      }
    }
  }
}

void check_broadcast(Communicator& world, const comm::OpOptions& options) {
  for (std::size_t count : {0u, 1u, 7u, 4099u, 30'000u}) {
    for (int root = 0; root < world.size(); ++root) {
      const Bytes expected = leaf(DType::F16, count, count + root);
      Bytes x = world.rank() == root ? expected : Bytes(expected.size());
      world.broadcast(buffer_over(x, DType::F16), root, options).wait();
      ASSERT_EQ(x, expected);
    }
  }
}

// Rank i sends leaf i*100 + j to rank j, with a count that both compute.
void check_all_to_all(Communicator& world, const comm::OpOptions& options) {
  const int size = world.size(), rank = world.rank();
  const DType dtype = DType::F32;
  for (std::size_t unit : {0u, 1u, 4u, 3001u}) {
    for (bool even : {true, false}) {
      const auto count = [&](int from, int to) {
        return even ? unit : unit * static_cast<std::size_t>((2 * from + to) % 4);
      };
      Bytes in, expected;
      Counts sends, receives;
      for (int peer = 0; peer < size; ++peer) {
        sends.push_back(count(rank, peer));
        receives.push_back(count(peer, rank));
        const Bytes out = leaf(dtype, sends.back(), rank * 100 + peer);
        const Bytes come = leaf(dtype, receives.back(), peer * 100 + rank);
        in.insert(in.end(), out.begin(), out.end());
        expected.insert(expected.end(), come.begin(), come.end());
      }
      Bytes out(expected.size());
      const Buffer from = buffer_over(in, dtype), to = buffer_over(out, dtype);
      if (even) {
        world.all_to_all(from, to, options).wait();
        ASSERT_EQ(out, expected);
        std::fill(out.begin(), out.end(), std::byte{});
      }
      world.all_to_all_v(from, to, sends, receives, options).wait();
      ASSERT_EQ(out, expected) << unit << " " << even << " on " << size;
    }
  }
}

TEST_P(Primitives, EqualTheReference) {
  for (int size : sizes()) {
    run(size, [&](Communicator& world) {
      switch (GetParam().kind) {
        case OpKind::Reduce:
          return check_reduce(world, options());
        case OpKind::ReduceScatter:
          return check_reduce_scatter(world, options());
        case OpKind::Broadcast:
          return check_broadcast(world, options());
        case OpKind::AllToAll:
          return check_all_to_all(world, options());
        default:
          return check_pieces(world, GetParam().kind, options());
      }
    });
  }
}

const OpKind kKinds[] = {OpKind::Reduce,  OpKind::ReduceScatter, OpKind::AllGather, OpKind::Gather,
                         OpKind::Scatter, OpKind::Broadcast,     OpKind::AllToAll};

std::vector<Param> params() {
  std::vector<Param> all;
  for (const OpKind kind : kKinds) {
    for (const char* transport : {"sim", "shm", "tcp"}) all.push_back({transport, kind, "auto"});
    for (const comm::AlgorithmEntry* entry : comm::algorithms_of(kind)) {
      for (const char* transport : {"sim", "shm", "tcp"}) {
        all.push_back({transport, kind, entry->name});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Primitives, ::testing::ValuesIn(params()), [](const auto& info) {
  return info.param.transport + "_" + std::string(comm::name_of(info.param.kind)) + "_" +
         info.param.algorithm;
});

class Fused : public ::testing::TestWithParam<std::string> {};

// Small buffers packed together, a large one, several types and empty ones: the bits of single
// calls.
TEST_P(Fused, ManyAtOnceAreAsOneByOne) {
  for (int size : {1, 2, 3, 5}) {
    test::run_group({GetParam(), "auto", size}, [&](Communicator& world) {
      std::vector<Bytes> many, single;
      std::vector<Buffer> buffers;
      std::vector<DType> types;
      for (std::size_t count : {3u, 300'000u, 0u, 17u, 5000u, 1u, 70'001u}) {
        for (DType dtype : {DType::F32, DType::BF16, DType::I32}) {
          if (count == 300'000u && dtype != DType::F32) continue;
          many.push_back(leaf(dtype, count, 10 * world.rank() + count));
          types.push_back(dtype);
        }
      }
      single = many;
      for (std::size_t i = 0; i < many.size(); ++i) {
        buffers.push_back(buffer_over(many[i], types[i]));
        world.all_reduce(buffer_over(single[i], types[i]), Sum).wait();
      }
      const Work fused = async::all_reduce_many(world, buffers, Sum);
      std::vector<float> behind(5, float(world.rank()));  // waits for all steps before it
      all_reduce(world, behind, Max);
      EXPECT_TRUE(fused.done());
      fused.wait();
      ASSERT_EQ(many, single);
      ASSERT_EQ(behind, std::vector<float>(5, float(size - 1)));
      all_reduce_many(world, {}, Sum);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Fused, ::testing::Values("sim", "shm", "tcp"),
                         [](const auto& info) { return info.param; });

// The seed decides which rank runs next on the simulated network, and each message's delay.
TEST(PrimitivesOnSim, AHundredSeedsManyAtOnce) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const int size = 2 + int(seed % 7), root = int(seed) % size;
    test::run_group({"sim", "auto", size, seed}, [&](Communicator& world) {
      const auto ranks = static_cast<std::size_t>(size);
      const float own = float(world.rank()), total = float(size * (size - 1) / 2);
      const std::size_t count = 1 + seed * 37;
      std::vector<float> in(count, own), sum(count), wide(count * ranks, own), out(count * ranks);
      std::vector<float> gathered(count * ranks), piece(count), part(count);
      Counts sends, receives;
      for (std::size_t r = 0; r < ranks; ++r) {
        sends.push_back(count / (r + 1));
        receives.push_back(count / (std::size_t(world.rank()) + 1));
      }
      std::vector<float> goes(std::accumulate(sends.begin(), sends.end(), std::size_t(0)), own);
      std::vector<float> comes(std::accumulate(receives.begin(), receives.end(), std::size_t(0)));
      const Buffer many[] = {buffer_of(wide), buffer_of(piece)};
      const Work works[] = {
          async::reduce(world, in, sum, Sum, root),
          async::all_to_all_v(world, goes, comes, sends, receives),
          async::gather(world, in, gathered, root),
          async::all_to_all(world, wide, out),
          async::scatter(world, gathered, part, root),
          async::all_reduce_many(world, many, Sum),
          async::barrier(world),
      };
      Work::all(works).wait();
      if (world.rank() == root) {
        ASSERT_EQ(sum, std::vector<float>(count, total)) << seed;
      }
      ASSERT_EQ(part, in) << seed;
      ASSERT_EQ(wide, std::vector<float>(count * ranks, total)) << seed;
      for (std::size_t r = 0; r < ranks; ++r) {
        ASSERT_EQ(out[r * count], float(r)) << seed;
        if (receives[r] > 0) {
          ASSERT_EQ(comes[r * receives[r]], float(r)) << seed;
        }
      }
    });
  }
}

// Large enough for several segments and pieces.
TEST(PrimitivesOnSim, LargeBuffers) {
  test::run_group({"sim", "auto", 3, 1}, [](Communicator& world) {
    const std::size_t count = 2'500'001;
    std::vector<float> in(count, float(world.rank() + 1)), out(count);
    for (const char* algorithm : {"tree", "pairwise"}) {
      std::fill(out.begin(), out.end(), 0.0f);
      reduce(world, in, out, Sum, 1, {.algorithm = algorithm});
      if (world.rank() == 1) {
        ASSERT_EQ(out, std::vector<float>(count, 6.0f));
      }
      ASSERT_EQ(in, std::vector<float>(count, float(world.rank() + 1)));
    }
    for (const char* algorithm : {"binomial", "chain"}) {
      out = in;
      broadcast(world, out, 2, {.algorithm = algorithm});
      ASSERT_EQ(out, std::vector<float>(count, 3.0f));
    }
  });
}

class Refusals : public ::testing::TestWithParam<std::string> {
 protected:
  // All ranks must refuse, each naming both calls, before `untouched` changes.
  void expect_refused(const std::string& first, const std::string& second,
                      const std::function<Work(Communicator&, Buffer)>& call) {
    std::atomic<int> seen{0};
    test::run_group({GetParam(), "auto", 3}, [&](Communicator& world) {
      std::vector<float> untouched(3000, 1.0f);
      try {
        call(world, buffer_of(untouched)).wait();
        ADD_FAILURE() << first << " was not refused";
      } catch (const MismatchError& error) {
        ++seen;
        EXPECT_THAT(error.what(), HasSubstr(first));
        EXPECT_THAT(error.what(), HasSubstr(second));
      }
      EXPECT_EQ(untouched, std::vector<float>(3000, 1.0f));
    });
    EXPECT_EQ(seen, 3) << first;
  }
};

TEST_P(Refusals, DifferentCallsOnEveryRank) {
  expect_refused("called reduce(root 0, Sum, F32, 3000", "rank 1 called reduce(root 1, Sum",
                 [](Communicator& world, Buffer x) {
                   return world.reduce(x, x, Sum, world.rank() == 1 ? 1 : 0);
                 });
  expect_refused("called gather(root 2, F32, 9000", "called scatter(root 2, F32, 9000",
                 [](Communicator& world, Buffer x) {
                   if (world.rank() < 2) return world.gather(x, {}, 2);
                   std::vector<float> all(9000);
                   const Work work = world.scatter(buffer_of(all), x, 2);
                   work.wait();
                   return work;
                 });
  expect_refused("rank 1 called gather(root 0, F32, 9000, counts #",
                 " called gather(root 0, F32, 9000, counts #", [](Communicator& world, Buffer x) {
                   std::vector<float> all(9000);
                   Counts counts = {3000, 3000, 3000};
                   if (world.rank() == 1) counts = {2999, 3000, 3001};
                   world.gather_v(x, buffer_of(all), counts, 0).wait();
                   return Work();
                 });
  expect_refused("called all_to_all(F32, 3000", "called reduce_scatter(Sum, F32, 3000",
                 [](Communicator& world, Buffer x) {
                   std::vector<float> out(3000);
                   if (world.rank() > 0) {
                     world.all_to_all(x, buffer_of(out)).wait();
                   } else {
                     world.reduce_scatter(x, buffer_of(out).slice(0, 1000), Sum).wait();
                   }
                   return Work();
                 });
}

TEST_P(Refusals, AFusedCallOfOtherBuffers) {
  expect_refused("called all_reduce(step 1, Sum, F32, 3000, counts #", "rank 1 called all_reduce(",
                 [](Communicator& world, Buffer x) {
                   const bool other = world.rank() == 1;
                   const Buffer halves[] = {x.slice(0, other ? 1000 : 1500),
                                            x.slice(other ? 1000 : 1500, other ? 2000 : 1500)};
                   return world.all_reduce_many(halves, Sum);
                 });
}

TEST_P(Refusals, CountsOfAPairThatDiffer) {
  expect_refused("rank 0 sends 1000 elements to rank 2, which expects 1100", "recv_counts[i]",
                 [](Communicator& world, Buffer x) {
                   const Counts sends(3, 1000);
                   Counts receives(3, 1000);
                   if (world.rank() == 2) receives = {1100, 900, 1000};
                   std::vector<float> in(3000, 2.0f);
                   const Work work = world.all_to_all_v(buffer_of(in), x, sends, receives);
                   work.wait();
                   return work;
                 });
}

INSTANTIATE_TEST_SUITE_P(Transports, Refusals, ::testing::Values("sim", "shm", "tcp"),
                         [](const auto& info) { return info.param; });

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.message();
  }
  return "accepted";
}

TEST(Arguments, AreCheckedWithTheArithmetic) {
  test::run_group({"sim", "auto", 3}, [](Communicator& world) {
    std::vector<float> x(7), y(8);
    std::vector<std::int64_t> whole(7);
    const Counts counts = {3, 0, 5}, two = {1, 2};
    EXPECT_THAT(refusal([&] { gather_v(world, x, y, counts, 0); }),
                HasSubstr("in holds 7 elements of F32, this rank's count is " +
                          std::to_string(counts[static_cast<std::size_t>(world.rank())])));
    EXPECT_THAT(refusal([&] { reduce_scatter_v(world, x, y, counts, Sum); }),
                HasSubstr("in holds 7 elements of F32, must be 3 + 0 + 5 = 8"));
    EXPECT_THAT(refusal([&] { scatter_v(world, x, y, two, 0); }),
                HasSubstr("2 counts given for 3 ranks"));
    EXPECT_THAT(refusal([&] { all_to_all(world, x, x); }),
                HasSubstr("7 elements / 3 ranks leaves 1"));
    Counts keeps(3, 0), expects(3, 0);
    keeps[world.rank()] = 8;
    expects[(world.rank() + 1) % 3] = 8;
    EXPECT_THAT(refusal([&] { all_to_all_v(world, y, y, keeps, expects); }),
                HasSubstr("this rank keeps 8 elements, but expects 0 of itself"));
    EXPECT_THAT(refusal([&] { reduce(world, x, y, Sum, world.rank()); }),
                HasSubstr("out holds 8 elements of F32, in 7 elements of F32"));
    EXPECT_THAT(refusal([&] { reduce(world, x, x, Sum, 3); }),
                HasSubstr("the root is rank 3, but the group has ranks 0 to 2"));
    EXPECT_THAT(refusal([&] { reduce(world, whole, whole, Mean, 0); }),
                HasSubstr("Mean of integers"));
    EXPECT_THAT(
        refusal([&] { gather(world, x, std::vector<float>(21), 0, {.algorithm = "ring"}); }),
        HasSubstr("unknown algorithm ring"));
  });
}

}  // namespace
}  // namespace trireme
