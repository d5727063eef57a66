#include "trireme/layers/expert/exchange.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/testing/run_ranks.h"

namespace trireme::parallel {
namespace {

// Row i of rank r for expert e is r * 1000 + e * 10 + i, in all its columns.
at::Tensor rows_of(int rank, const std::vector<std::int64_t>& counts) {
  std::vector<at::Tensor> rows = {at::empty({0, 3}, at::kDouble)};
  for (std::size_t e = 0; e < counts.size(); ++e)
    for (std::int64_t i = 0; i < counts[e]; ++i)
      rows.push_back(at::full(
          {1, 3}, rank * 1000 + static_cast<double>(e) * 10 + static_cast<double>(i), at::kDouble));
  return at::cat(rows);
}
std::vector<std::int64_t> counts_of(int rank, int experts) {
  std::vector<std::int64_t> counts;
  // Rank 1 has nothing, and nobody has anything for expert 2.
  for (int e = 0; e < experts; ++e) counts.push_back(rank == 1 || e == 2 ? 0 : (rank + e) % 4);
  return counts;
}

TEST(ExpertExchange, BringsRowsToTheirExpertsAndBack) {
  for (const int ranks : {1, 2, 3}) {
    for (const int of_rank : {1, 2}) {
      const int experts = ranks * of_rank;
      testing::run_ranks(ranks, [&](testing::RankContext& rank) {
        const auto exchange = expert_exchange(*rank.world, experts);
        const auto counts = counts_of(rank.rank, experts);
        const at::Tensor rows = rows_of(rank.rank, counts).set_requires_grad(true);
        const models::Exchanged here = exchange(rows, counts);
        std::vector<at::Tensor> wanted = {at::empty({0, 3}, at::kDouble)};
        for (int own = 0; own < of_rank; ++own) {
          const int expert = rank.rank * of_rank + own;
          std::int64_t all = 0;
          for (int from = 0; from < ranks; ++from) {
            std::vector<std::int64_t> alone(static_cast<std::size_t>(experts), 0);
            const auto at = static_cast<std::size_t>(expert);
            all += alone[at] = counts_of(from, experts)[at];
            wanted.push_back(rows_of(from, alone));
          }
          EXPECT_EQ(here.counts.at(static_cast<std::size_t>(own)), all);
        }
        EXPECT_TRUE(at::equal(here.rows, at::cat(wanted))) << here.rows;
        // The rank of each expert multiplies by its number, which shows who computed a row.
        const double factor = rank.rank + 2;
        const at::Tensor back = here.back(here.rows * factor);
        ASSERT_EQ(back.sizes(), rows.sizes());
        std::vector<at::Tensor> factors = {at::empty({0}, at::kDouble)};
        for (int e = 0; e < experts; ++e)
          factors.push_back(
              at::full({counts[static_cast<std::size_t>(e)]}, e / of_rank + 2, at::kDouble));
        const at::Tensor of_row = at::cat(factors).unsqueeze(1);
        EXPECT_TRUE(at::equal(back, rows * of_row));
        back.sum().backward();
        EXPECT_TRUE(at::equal(rows.grad(), of_row.expand_as(rows)));
      });
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
