#include "trireme/ps/rows/row_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "trireme/base/error.h"
#include "trireme/kernel/optimizers/apply.h"
#include "trireme/ps/rows/row_shard.h"

namespace trireme::row_table_test {
namespace {

using namespace ps;
using Floats = std::vector<float>;
using Ids = std::vector<std::int64_t>;

const ServedTable kTable{.name = "items", .width = 5, .bound = 0.5, .seed = 7};

Floats random_rows(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Floats row_of(const RowTable& table, std::int64_t id) {
  Floats row(table.width());
  table.read(std::span(&id, 1), row.data());
  return row;
}

Floats initial(const ServedTable& table, std::int64_t id) {
  Floats row(static_cast<std::size_t>(table.width));
  InitialRows(table).fill(id, row.data());
  return row;
}

TEST(RowIndex, DoesWhatAMapDoes) {
  RowIndex index;
  std::map<std::int64_t, std::uint32_t> map;
  std::mt19937_64 random(3);
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    const auto id = static_cast<std::int64_t>(random() % 3'000) << (i % 3 * 20);
    switch (random() % 3) {
      case 0:
        index.erase(id);
        map.erase(id);
        break;
      case 1:
        ASSERT_EQ(index.insert(id, i), map.try_emplace(id, i).first->second);
        break;
      default:
        ASSERT_EQ(index.find(id), map.contains(id) ? map.at(id) : RowIndex::kNone);
    }
    ASSERT_EQ(index.size(), map.size());
  }
  index.clear();
  for (const auto& [id, position] : map) EXPECT_EQ(index.find(id), RowIndex::kNone);
}

TEST(ServedTable, RowsBeginWithValuesOfSeedNameAndIdAlone) {
  std::set<Floats> all;
  double sum = 0;
  for (std::int64_t id = 0; id < 2'000; ++id) {
    const Floats row = initial(kTable, id << (id % 2 * 30));
    EXPECT_EQ(row, initial(kTable, id << (id % 2 * 30)));
    for (const float value : row) {
      EXPECT_LE(std::abs(value), 0.5f);
      sum += value;
    }
    all.insert(row);
  }
  EXPECT_EQ(all.size(), 2'000u);
  EXPECT_NEAR(sum / 10'000, 0, 0.01);  // deviation of the mean: 0.003
  ServedTable other = kTable;
  other.seed = 8;
  EXPECT_NE(initial(other, 1), initial(kTable, 1));
  other = kTable;
  other.name = "users";
  EXPECT_NE(initial(other, 1), initial(kTable, 1));
}

TEST(ServedTable, ServersHaveAboutEqualNumbersOfRowsAndOfTraffic) {
  for (const int servers : {2, 3, 8}) {
    std::vector<double> rows(static_cast<std::size_t>(servers));
    for (std::int64_t id = 0; id < 80'000; ++id)
      ++rows[static_cast<std::size_t>(server_of_row(kTable, 1'000 * id, servers))];
    for (const double count : rows) EXPECT_NEAR(count * servers / 80'000, 1, 0.05);
  }
}

TEST(RowTable, ReadsInitialValuesAndCreatesNothing) {
  const RowTable table(kTable, 0, Sgd{});
  Floats rows(40 * 5);
  Ids ids(40);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * i);
  table.read(ids, rows.data());
  for (std::size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(Floats(&rows[i * 5], &rows[i * 5] + 5), initial(kTable, ids[i]));
  EXPECT_EQ(table.size(), 0u);
}

// Each row follows the optimizer's rule by its own count of updates, as a dense parameter of 5 elements
// that is updated in the same steps.
template <class Options>
void expect_rule(const Options& options) {
  RowTable table(kTable, 0, options);
  std::map<std::int64_t, std::vector<Floats>> expected;
  std::map<std::int64_t, std::int64_t> counts;
  std::mt19937_64 random(5);
  for (unsigned step = 0; step < 40; ++step) {
    std::set<std::int64_t> chosen;
    while (chosen.size() < 30) chosen.insert(static_cast<std::int64_t>(random() % 90));
    const Ids ids(chosen.begin(), chosen.end());
    const Floats gradients = random_rows(ids.size() * 5, step);
    const double rate = 0.1 / (1 + step);
    table.update(ids, gradients.data(), rate, 0.25);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      auto& arrays = expected[ids[i]];
      if (arrays.empty()) {
        arrays.assign(1 + options.state().size(), Floats(5, 0.0f));
        arrays[0] = initial(kTable, ids[i]);
      }
      const auto rule = options.rule({.count = ++counts[ids[i]],
                                      .rate = rate,
                                      .weight_decay = options.weight_decay,
                                      .scale = 0.25});
      float* out[rule.kShape.both] = {};
      for (std::size_t k = 0; k < arrays.size(); ++k) out[k] = arrays[k].data();
      const float* in = &gradients[i * 5];
      kernel::apply(rule, &in, out, nullptr, 5);
    }
  }
  EXPECT_EQ(table.size(), expected.size());
  for (const auto& [id, arrays] : expected)
    EXPECT_EQ(row_of(table, id), arrays[0]) << Options::kName << " row " << id;
}

TEST(RowTable, UpdatesRowsByEveryOptimizersKernel) {
  expect_rule(Sgd{.learning_rate = 0.1});
  expect_rule(Sgd{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
  expect_rule(AdamW{.learning_rate = 0.1, .weight_decay = 0.1});
  expect_rule(Lion{});
  expect_rule(Adagrad{});
  expect_rule(Ftrl{.l1 = 0.01, .weight_decay = 0.1});
}

TEST(RowTable, AnOptimizerThatNeedsWholeParametersIsRefused) {
  EXPECT_THROW(RowTable(kTable, 0, Lamb{}), ConfigError);
}

TEST(RowTable, AParameterGroupThatMatchesItsRowsCounts) {
  RowTable table(kTable, 0, Sgd{.groups = {{.match = "items.*", .rate_factor = 0}}});
  const Ids ids{3};
  table.update(ids, random_rows(5, 1).data(), 1, 1);
  EXPECT_EQ(row_of(table, 3), initial(kTable, 3));
}

TEST(RowTable, DropsTheLeastRecentlyUpdatedRowsBeyondItsBound) {
  RowTable table(kTable, 32, Sgd{.learning_rate = 0.1});
  const Floats ones(32 * 5, 1.0f);
  Ids ids(32);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  table.update(ids, ones.data(), 0.1, 1);
  EXPECT_EQ(table.size(), 32u);
  table.update(std::span(ids).first(30), ones.data(), 0.1, 1);  // not 30 and 31
  const Floats kept = row_of(table, 29);
  const Ids more{1'000, 1'001};
  table.update(more, ones.data(), 0.1, 1);
  EXPECT_EQ(table.size(), 30u);  // a sixteenth more than it must
  EXPECT_EQ(table.dropped(), 4);
  EXPECT_EQ(row_of(table, 30), initial(kTable, 30));  // begins anew
  EXPECT_EQ(row_of(table, 31), initial(kTable, 31));
  EXPECT_EQ(row_of(table, 0), initial(kTable, 0));  // of the oldest, the lowest ids
  EXPECT_EQ(row_of(table, 29), kept);
  EXPECT_NE(row_of(table, 1'000), initial(kTable, 1'000));
  table.update(ids, ones.data(), 0.1, 1);
  EXPECT_EQ(table.size(), 30u);  // slots are used again
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators abort
// It must not count as a refusal of the request: some of its rows have been updated.
TEST(RowTable, HasNoErrorButTheAllocatorsIfThereIsNoMemory) {
  RowTable table({.name = "huge", .width = std::int64_t{1} << 45}, /*max_rows=*/0, Sgd{});
  const std::int64_t id = 1;
  EXPECT_THROW(table.update({&id, 1}, nullptr, 1, 1), std::bad_alloc);
}
#endif

TEST(RowTable, GoesOnFromWhatItSavedWithTheSameBits) {
  const AdamW adam{.learning_rate = 0.1};
  RowTable table(kTable, 50, adam);
  std::mt19937_64 random(9);
  const auto step = [&](RowTable& one, unsigned seed) {
    std::mt19937_64 own(seed);
    std::set<std::int64_t> chosen;
    while (chosen.size() < 20) chosen.insert(static_cast<std::int64_t>(own() % 80));
    const Ids ids(chosen.begin(), chosen.end());
    one.update(ids, random_rows(ids.size() * 5, seed).data(), 0.1, 1);
  };
  for (unsigned i = 0; i < 10; ++i) step(table, i);
  const SavedTable saved = table.save();
  EXPECT_TRUE(std::is_sorted(saved.ids.begin(), saved.ids.end()));
  RowTable other(kTable, 50, adam);
  other.load(saved);
  for (unsigned i = 10; i < 20; ++i) {
    step(table, i);
    step(other, i);
  }
  EXPECT_EQ(table.save().ids, other.save().ids);
  EXPECT_EQ(table.save().rows, other.save().rows);
  EXPECT_EQ(table.save().state, other.save().state);
  EXPECT_EQ(table.save().last, other.save().last);
  EXPECT_THROW(other.load(saved), MismatchError);  // they are here already
  EXPECT_THROW(RowTable(kTable, 50, Sgd{}).load(saved), MismatchError);
}

TEST(SparseRows, AddsRepeatedRowsInTheirOrderAndHasNoNegativeZero) {
  SparseRows sum(2);
  const Ids ids{5, 3, 5};
  const Floats rows{1e8f, -0.0f, 2, -0.0f, 1, -0.0f};
  sum.add({ids, rows.data()});
  ASSERT_EQ(sum.size(), 2u);
  const RowsView view = sum.view();
  EXPECT_EQ(view.ids[0], 5);
  EXPECT_EQ(view.rows[0], 1e8f + 1.0f);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FALSE(std::signbit(view.rows[i]));
}

// Terms on any servers, in any division, give the bits of a dense tree sum.
TEST(RowTable, ReadsRowsAsTheyWereBeforeTheLastUpdate) {
  RowTable table(kTable, /*max_rows=*/4, Sgd{});
  table.keep_previous();
  const auto width = static_cast<std::size_t>(kTable.width);
  const auto update = [&](const std::vector<std::int64_t>& ids) {
    table.update(ids, std::vector<float>(ids.size() * width, 1).data(), 0.1, 1);
  };
  const std::vector<std::int64_t> all = {1, 2, 3, 4, 5, 9};
  const auto rows = [&](bool previous) {
    std::vector<float> out(all.size() * width);
    previous ? table.read_previous(all, out.data()) : table.read(all, out.data());
    return out;
  };
  const std::vector<float> first = rows(false);
  EXPECT_EQ(rows(true), first);
  update({1, 2, 3, 4});
  EXPECT_EQ(rows(true), first) << "rows that the update has created";
  const std::vector<float> second = rows(false);
  update({3, 5});
  EXPECT_LT(table.size(), 5u) << "some are dropped";
  EXPECT_EQ(rows(true), second);
  EXPECT_NE(rows(false), second);
}

TEST(RowShard, FoldsTermsAsTheTreeSumOfDenseGradients) {
  constexpr std::uint32_t kLeaves = 7;
  constexpr std::int64_t kRows = 12;
  std::vector<Ids> ids(kLeaves);
  std::vector<Floats> rows(kLeaves);
  std::mt19937_64 random(1);
  std::vector<Floats> dense(kLeaves, Floats(kRows * 5, 0.0f));
  for (std::uint32_t leaf = 0; leaf < kLeaves; ++leaf) {
    rows[leaf] = random_rows(kRows * 5, leaf + 10);
    for (std::int64_t id = 0; id < kRows; ++id) {
      if (random() % 2 == 0) continue;
      std::copy_n(&rows[leaf][ids[leaf].size() * 5], 5,
                  &dense[leaf][static_cast<std::size_t>(id) * 5]);
      ids[leaf].push_back(id);
    }
  }
  std::vector<kernel::LeafRange> nodes;
  std::vector<std::vector<RowsView>> terms;
  for (std::uint32_t leaf = 0; leaf < kLeaves; ++leaf) {
    nodes.push_back({leaf, 1});
    terms.push_back({{ids[leaf], rows[leaf].data()}});
  }
  const auto steps = kernel::fold_steps(nodes, kLeaves);
  std::vector<const void*> in;
  for (const Floats& one : dense) in.push_back(one.data());
  Floats total(kRows * 5);
  void* out = total.data();
  kernel::fold(kernel::Combine::Sum, DType::F32, steps, in, std::span(&out, 1), total.size(), 0);

  RowShard shard(std::span(&kTable, 1), 0, 1, Sgd{});
  shard.fold(terms, steps);
  EXPECT_FALSE(shard.first_not_finite());
  shard.apply(-1, 1);
  for (std::int64_t id = 0; id < kRows; ++id) {
    const Floats got = row_of(shard.table(0), id), begin = initial(kTable, id);
    for (std::size_t k = 0; k < 5; ++k)
      EXPECT_EQ(got[k], begin[k] + total[static_cast<std::size_t>(id) * 5 + k]) << id;
  }
}

TEST(RowShard, NamesWhatIsNotFiniteAndRefusesRowsOfOtherServers) {
  RowShard shard(std::span(&kTable, 1), 0, 2, Sgd{});
  Ids own, others;
  for (std::int64_t id = 0; id < 100; ++id)
    (server_of_row(kTable, id, 2) == 0 ? own : others).push_back(id);
  Floats rows(own.size() * 5, 1.0f);
  RowsView view{own, rows.data()};
  shard.check(std::span(&view, 1));
  EXPECT_FALSE(shard.first_not_finite(std::span(&view, 1)));
  rows[5 * 3 + 4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(shard.first_not_finite(std::span(&view, 1)), "items row " + std::to_string(own[3]));
  view.ids = std::span(others).first(1);
  EXPECT_THROW(shard.check(std::span(&view, 1)), MismatchError);
}

}  // namespace
}  // namespace trireme::row_table_test
