// Rows between workers and servers, over the simulated network with many seeds.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/ps/rows/row_store.h"
#include "trireme/ps/sim_cluster_test.h"

namespace trireme::row_exchange_test {
namespace {

using namespace ps;
using Ids = std::vector<std::int64_t>;
using Floats = std::vector<float>;

const ServedTable kItems{.name = "items", .width = 3, .bound = 0.5};
const ServedTable kUsers{.name = "users", .width = 2, .bound = 0};

Settings settings_of(std::int64_t staleness, int workers, int servers, int replicas = 1) {
  return {.model = ServedModel({{.name = "w", .shape = {5'000}}}, servers, {}, {kItems, kUsers}),
          .optimizer = Sgd{.learning_rate = 1},
          .workers = workers,
          .server = {.staleness = staleness, .replicas = replicas}};
}

void write_zeros(ParameterClient& client) {
  for (int server = 0; server < client.servers(); ++server)
    client.write(server, {SavedText{}.to_text(),
                          std::vector<std::byte>(client.settings().model.bytes(server))});
}

void clear_gradients(ParameterClient& client, std::size_t terms = 1) {
  for (int server = 0; server < client.servers(); ++server) {
    const std::span<std::byte> memory = client.gradient(server, terms);
    if (!memory.empty()) std::memset(memory.data(), 0, memory.size());
  }
}

// Rows of ones in both tables.
class Ones {
 public:
  explicit Ones(Ids ids) : ids_(std::move(ids)), ones_(3 * ids_.size(), -1.0f) {}
  std::vector<RowsView> view() const { return {{ids_, ones_.data()}, {ids_, ones_.data()}}; }

 private:
  Ids ids_;
  Floats ones_;
};

void run_workers(std::uint64_t seed, int workers, int servers, const Settings& settings,
                 const std::function<void(int worker, ParameterClient& client)>& work,
                 int broken_per_million = 60'000) {
  SimCluster cluster(seed, workers, servers, broken_per_million);
  cluster.run(settings,
              [&](int worker, ParameterClient& client, Waiter&) { work(worker, client); });
  EXPECT_EQ(cluster.failures, std::vector<std::string>());
}

Floats pulled(ParameterClient& client, std::uint32_t table, const Ids& ids) {
  Floats rows(ids.size() * static_cast<std::size_t>(client.settings().model.tables()[table].width));
  client.pull_rows(table, ids, rows.data());
  return rows;
}

void expect_moved(ParameterClient& client, const Ids& ids, float by, std::uint64_t seed) {
  const Floats items = pulled(client, 0, ids), users = pulled(client, 1, ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Floats initial(3);
    InitialRows(kItems).fill(ids[i], initial.data());
    for (std::size_t k = 0; k < 3; ++k)
      EXPECT_NEAR(items[3 * i + k], initial[k] + by, 1e-4) << "seed " << seed;
    EXPECT_EQ(users[2 * i], by) << "seed " << seed;
  }
}

TEST(RowExchange, AppliesEveryPushOfRowsOnceWhateverBreaks) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    for (const std::int64_t staleness : {-1, 2}) {
      constexpr int kSteps = 10, kWorkers = 3;
      int pushed = 0;
      run_workers(seed, kWorkers, 2, settings_of(staleness, kWorkers, 2),
                  [&](int worker, ParameterClient& client) {
                    if (worker == 0) write_zeros(client);
                    client.pull();
                    // Rows that all workers change, and some of its own.
                    const Ones rows({1, 2, 3, 4, 5, 6, 100 + worker, 1'000'000'007 + worker});
                    for (int step = 0; step < kSteps; ++step) {
                      (void)pulled(client, 0, {1, 2, 3, 100 + worker});
                      const std::vector<std::vector<RowsView>> terms{rows.view()};
                      client.set_rows(terms);
                      clear_gradients(client);
                      EXPECT_EQ(client.push(1, 1), std::nullopt);
                    }
                    expect_moved(client, {100 + worker, 1'000'000'007 + worker}, kSteps, seed);
                    if ((pushed += kSteps) < kSteps * kWorkers) return;
                    expect_moved(client, {1, 2, 3, 4, 5, 6}, kSteps * kWorkers, seed);
                    expect_moved(client, {7, 8}, 0, seed);
                  });
    }
  }
}

TEST(RowExchange, CommitsTheSumOfAllWorkersRowsOnceWhateverBreaks) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    constexpr int kSteps = 8, kWorkers = 3;
    constexpr std::uint32_t kLeaves = 5;
    run_workers(
        seed, kWorkers, 2, settings_of(0, kWorkers, 2), [&](int worker, ParameterClient& client) {
          if (worker == 0) write_zeros(client);
          client.pull();
          const auto nodes =
              kernel::maximal_nodes(kernel::contiguous_share(kLeaves, kWorkers, worker), kLeaves);
          const Ones common({1, 2, 3}), own({100 + worker});
          for (int step = 0; step < kSteps; ++step) {
            std::vector<std::vector<RowsView>> terms;
            for (std::size_t i = 0; i < nodes.size(); ++i)
              terms.push_back(i == 0 ? common.view() : own.view());
            client.set_rows(terms);
            clear_gradients(client, nodes.size());
            EXPECT_EQ(client.sum(nodes, kLeaves).not_finite, -1);
            client.commit(1, 1);
          }
          expect_moved(client, {1, 2, 3}, kSteps * kWorkers, seed);
          if (nodes.size() > 1)
            expect_moved(client, {100 + worker}, static_cast<float>(kSteps * (nodes.size() - 1)),
                         seed);
        });
  }
}

TEST(RowExchange, ServersThatAreKilledLoseNoAcknowledgedRow) {
  int killed = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    constexpr int kSteps = 12, kWorkers = 3;
    const int servers = 2 + static_cast<int>(seed % 2);
    SimCluster cluster(seed, kWorkers, servers);
    cluster.on_applied = [&](const Applied&) {
      if (cluster.draw(10) == 0)
        cluster.kill_server(static_cast<int>(cluster.draw(static_cast<std::uint64_t>(servers))));
    };
    int pushed = 0;
    cluster.run(settings_of(seed % 3 == 0 ? 2 : -1, kWorkers, servers, /*replicas=*/2),
                [&](int worker, ParameterClient& client, Waiter&) {
                  if (worker == 0 && !client.ready()) write_zeros(client);
                  client.pull();
                  const Ones rows({1, 2, 3, 4, 5, 6, 100 + worker});
                  for (int step = 0; step < kSteps; ++step) {
                    (void)pulled(client, 0, {1, 2, 3, 100 + worker});
                    const std::vector<std::vector<RowsView>> terms{rows.view()};
                    client.set_rows(terms);
                    clear_gradients(client);
                    EXPECT_EQ(client.push(1, 1), std::nullopt);
                  }
                  expect_moved(client, {100 + worker}, kSteps, seed);
                  if ((pushed += kSteps) == kSteps * kWorkers)
                    expect_moved(client, {1, 2, 3, 4, 5, 6}, kSteps * kWorkers, seed);
                });
    ASSERT_EQ(cluster.failures, std::vector<std::string>()) << "seed " << seed;
    killed += cluster.num_killed;
  }
  EXPECT_GE(killed, 100);
}

TEST(RowExchange, APushWithANanIsRefusedCountedAndNamed) {
  run_workers(
      1, 1, 1, settings_of(-1, 1, 1),
      [&](int, ParameterClient& client) {
        write_zeros(client);
        client.pull();
        const Ids ids{7, 8};
        Floats rows(6, 1.0f);
        rows[4] = std::numeric_limits<float>::quiet_NaN();
        const std::vector<std::vector<RowsView>> terms{{{ids, rows.data()}, {}}};
        client.set_rows(terms);
        clear_gradients(client);
        EXPECT_EQ(client.push(1, 1), "items row 8");
        expect_moved(client, ids, 0, 1);
        const auto figures = nlohmann::json::parse(client.figures());
        EXPECT_EQ(figures[0]["workers"]["0"]["dropped"], 1);
        EXPECT_EQ(figures[0]["workers"]["0"]["pushes"], 0);
        EXPECT_EQ(figures[0]["tables"]["items"]["rows"], 0);
      },
      0);
}

TEST(RowExchange, WhatServersSavedIsReadAndGivenToOtherServers) {
  Ids ids;
  for (std::int64_t id = 0; id < 50; ++id) ids.push_back(id * id);
  std::vector<SavedTable> all;
  run_workers(
      2, 1, 3, settings_of(-1, 1, 3),
      [&](int, ParameterClient& client) {
        write_zeros(client);
        client.pull();
        const Ones ones(ids);
        const std::vector<std::vector<RowsView>> terms{ones.view()};
        client.set_rows(terms);
        clear_gradients(client);
        client.push(1, 1);
        std::vector<std::vector<SavedTable>> servers;
        for (int server = 0; server < 3; ++server) {
          const Saved saved = client.read(server, /*with_rows=*/true);
          servers.push_back(
              tables_in(SavedText::from_text(saved.text),
                        std::span(saved.memory).subspan(client.settings().model.bytes(server))));
          EXPECT_GT(servers.back()[0].ids.size(), 5u);
        }
        all = joined_rows(servers);
      },
      0);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].ids, ids);
  run_workers(
      3, 1, 2, settings_of(-1, 1, 2),
      [&](int, ParameterClient& client) {
        for (int server = 0; server < 2; ++server) {
          Saved saved{"", std::vector<std::byte>(client.settings().model.bytes(server))};
          append(saved, SavedText{},
                 rows_of_server(all, client.settings().model.tables(), server, 2));
          client.write(server, saved);
        }
        client.pull();
        expect_moved(client, ids, 1, 3);
      },
      0);
}

TEST(RowExchange, AWorkerWithAnotherTableIsRefusedWithTheDifference) {
  const auto difference = [](std::vector<ServedTable> tables) {
    const ServedModel own({{.name = "w", .shape = {10}}}, 1, {}, {kItems, kUsers});
    const ServedModel theirs = ServedModel::from_text(
        ServedModel({{.name = "w", .shape = {10}}}, 1, {}, std::move(tables)).to_text());
    return own.difference(theirs);
  };
  EXPECT_EQ(difference({kItems, kUsers}), "");
  EXPECT_EQ(difference({kItems}), "it has no table users, the server has");
  ServedTable wide = kUsers;
  wide.width = 4;
  EXPECT_EQ(
      difference({kItems, wide}),
      "its table users is of rows of 4 elements, which begin within 0 by seed 1, the server's "
      "is of rows of 2 elements, which begin within 0 by seed 1");
}

}  // namespace
}  // namespace trireme::row_exchange_test
