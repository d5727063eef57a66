
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <random>

#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::comm {
namespace {

using ::testing::HasSubstr;
using testing::RankContext;
using testing::run_ranks;

// Random rows; `num_rows` should be small, so that rows repeat on a rank and between ranks.
SparseRows rows_of(int rank, std::size_t count, std::int64_t num_rows, std::size_t width) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 31 + count);
  SparseRows rows{.width = width, .num_rows = num_rows};
  rows.values.resize(count * rows.row_bytes());
  for (std::size_t i = 0; i < count; ++i) {
    rows.indices.push_back(
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(num_rows)));
    for (std::size_t j = 0; j < width; ++j) {
      float value = static_cast<float>(random() % 2001) / 3.0f - 333.0f;
      if (random() % 16 == 0) value = -0.0f;
      std::memcpy(&rows.values[(i * width + j) * 4], &value, 4);
    }
  }
  return rows;
}

// The rows as a whole matrix, with +0 for missing rows; its all_reduce is the reference.
std::vector<float> dense_of(const SparseRows& rows) {
  std::vector<float> dense(static_cast<std::size_t>(rows.num_rows) * rows.width);
  for (std::size_t i = 0; i < rows.indices.size(); ++i) {
    for (std::size_t j = 0; j < rows.width; ++j) {
      dense[static_cast<std::size_t>(rows.indices[i]) * rows.width + j] += rows.row<float>(i)[j];
    }
  }
  return dense;
}

TEST(Sparse, BothWaysHaveTheBitsOfTheDenseSum) {
  for (int size : {1, 2, 3, 4, 5, 8}) {
    for (std::size_t count : {0u, 1u, 40u, 700u}) {
      for (const ReduceOp op : {Sum, Mean}) {
        run_ranks(size, [&](RankContext& rank) {
          // Ranks bring different numbers of rows; some bring none.
          const SparseRows mine = rows_of(rank.rank, count * ((rank.rank + 1) % 3), 90, 17);
          std::vector<float> dense = dense_of(mine);
          all_reduce(*rank.world, dense, op);
          for (const SparseWay way : {SparseWay::Choose, SparseWay::Gather, SparseWay::Dense}) {
            const SparseRows sum = sparse_all_reduce(*rank.world, mine, op, {.way = way});
            std::vector<bool> brought(90);
            for (std::size_t i = 0; i < sum.indices.size(); ++i) {
              const auto index = static_cast<std::size_t>(sum.indices[i]);
              ASSERT_TRUE(i == 0 || sum.indices[i] > sum.indices[i - 1]);
              ASSERT_EQ(std::memcmp(sum.row<float>(i).data(), &dense[index * 17], 17 * 4), 0)
                  << "row " << index << " of " << count << " on " << size;
              brought[index] = true;
            }
            for (std::size_t row = 0; row < 90; ++row) {
              ASSERT_TRUE(brought[row] || dense[row * 17] == 0.0f);
            }
          }
        });
      }
    }
  }
}

TEST(Sparse, OtherTypes) {
  run_ranks(3, [](RankContext& rank) {
    for (const DType dtype :
         {DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::U8}) {
      SparseRows mine{.indices = {4, 1, 4}, .width = 5, .num_rows = 6, .dtype = dtype};
      mine.values.resize(3 * mine.row_bytes());
      for (std::size_t i = 0; i < mine.values.size(); ++i) {
        mine.values[i] = std::byte(i * 7 + static_cast<std::size_t>(rank.rank));
      }
      const SparseRows gathered =
          sparse_all_reduce(*rank.world, mine, Sum, {.way = SparseWay::Gather});
      const SparseRows dense = sparse_all_reduce(*rank.world, mine, Sum, {.way = SparseWay::Dense});
      EXPECT_EQ(gathered.indices, (std::vector<std::int64_t>{1, 4}));
      EXPECT_EQ(gathered.indices, dense.indices);
      EXPECT_EQ(gathered.values, dense.values) << trireme::name_of(dtype);
    }
  });
}

TEST(Sparse, KeepsItsPlaceAmongTheCalls) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    run_ranks(
        2 + static_cast<int>(seed % 4),
        [&](RankContext& rank) {
          SparseRows one, other;
          std::vector<float> x(400, 1.0f);
          const Work works[] = {
              async::sparse_all_reduce(*rank.world, rows_of(rank.rank, seed, 50, 3), one, Sum),
              async::all_reduce(*rank.world, x, Sum),
              async::sparse_all_reduce(*rank.world, rows_of(rank.rank, seed, 50, 3), other, Sum)};
          Work::all(works).wait();
          EXPECT_EQ(one.values, other.values);
          EXPECT_EQ(x, std::vector<float>(400, static_cast<float>(rank.size)));
        },
        {.seed = seed});
  }
}

TEST(Sparse, AMismatchIsSeenByEveryRank) {
  std::atomic<int> seen{0};
  run_ranks(3, [&](RankContext& rank) {
    try {
      sparse_all_reduce(*rank.world, rows_of(rank.rank, 5, 50, rank.rank == 1 ? 4 : 3), Sum);
    } catch (const MismatchError& error) {
      ++seen;
      EXPECT_THAT(error.what(), HasSubstr("rank 1 called sparse_all_reduce(step 1 all_gather"));
    }
  });
  EXPECT_EQ(seen, 3);
}

TEST(Sparse, RefusesWrongCalls) {
  run_ranks(2, [](RankContext& rank) {
    SparseRows rows = rows_of(0, 3, 10, 4);
    const auto refusal = [&](ReduceOp op) {
      try {
        sparse_all_reduce(*rank.world, rows, op);
      } catch (const ConfigError& error) {
        return error.message();
      }
      return std::string("accepted");
    };
    EXPECT_THAT(refusal(Max), HasSubstr("supports Sum and Mean, not Max"));
    rows.indices[1] = 10;
    EXPECT_THAT(refusal(Sum), HasSubstr("index 10 is outside of the matrix, which has 10 rows"));
    rows.indices.pop_back();
    EXPECT_THAT(refusal(Sum), HasSubstr("48 bytes of values, must be 2 rows * 4 of F32 = 32"));
  });
}

}  // namespace
}  // namespace trireme::comm
