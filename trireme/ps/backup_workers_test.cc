// Backup workers: a round is complete without some of the workers, at each server on its own.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/ps/figures.h"
#include "trireme/ps/server/service_test.h"
#include "trireme/ps/sim_cluster_test.h"

namespace trireme::backup_workers_test {
namespace {

using namespace trireme::ps;
using service_test::bytes_of;
using service_test::Floats;
using service_test::Server;

Settings settings_of(int workers, int servers, int replicas = 1) {
  return {.model =
              ServedModel({{.name = "w", .shape = {20'000}}, {.name = "b", .shape = {3}}}, servers),
          .optimizer = Sgd{.learning_rate = 1},
          .workers = workers,
          .server = {.backup = 1, .replicas = replicas}};
}

// A server with zeros, of two workers, one of which is enough.
struct Two {
  Two() {
    for (const int worker : {0, 1}) server.attach(worker, settings);
    server.write(0, Floats(settings.model.bytes(0) / 4, 0));
  }
  const Reply* send(int worker, std::int64_t round) {
    return server.ask(worker,
                      {.ask = Ask::Terms,
                       .worker = worker,
                       .round = round,
                       .rate = 0.1,
                       .total = 2,
                       .nodes = {{static_cast<std::uint32_t>(worker), 1}}},
                      bytes_of(gradient));
  }
  std::vector<std::int64_t> pushes() {
    return ServerFigures::from_text("[" + server.service().figures() + "]").pushes;
  }

  const Settings settings = settings_of(2, 1);
  Server server;
  Floats gradient = Floats(settings.model.sum_bytes(0) / 4, -1);
};

// All workers begin a round from the same weights, also one that the last round was complete without.
TEST(BackupWorkers, ALateOneGetsTheWeightsOfTheRoundThatItMissed) {
  Two two;
  ASSERT_NE(two.send(0, 0), nullptr);
  EXPECT_TRUE(two.send(1, 0)->dropped);
  EXPECT_EQ(two.server.reply(1)->round, 1);
  EXPECT_EQ(two.server.ask(1, {.ask = Ask::Pull, .worker = 1})->version, 1);
  EXPECT_FLOAT_EQ(two.server.floats(1).front(), 0.1F);
  two.server.service().lost(0);  // before it has asked for the weights
  EXPECT_EQ(two.server.service().version(), 1);
}

TEST(BackupWorkers, AGradientThatCountsAsAppliedIsInTheWeights) {
  Two two;
  // Each time without a commit: the worker was late at another server.
  EXPECT_FALSE(two.send(0, 0)->dropped);
  EXPECT_FALSE(two.send(1, 1)->dropped);
  EXPECT_EQ(two.server.service().version(), 2);
  EXPECT_EQ(two.pushes(), (std::vector<std::int64_t>{1, 1}));
  two.gradient.front() = std::numeric_limits<float>::infinity();
  EXPECT_EQ(two.send(0, 2)->not_finite, 0);
  EXPECT_EQ(two.server.service().version(), 2);
  EXPECT_EQ(two.pushes(), (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(two.server.ask(1, {.ask = Ask::Pull, .worker = 1})->version, 2);
}

// All that are left are waited for, as long as they are no more than the job's workers less its backups.
TEST(BackupWorkers, StepsAreAsLongWhenOneHasLeft) {
  const Settings settings = settings_of(4, 1);
  Server server;
  for (int worker = 0; worker < 4; ++worker) server.attach(worker, settings);
  server.write(0, Floats(settings.model.bytes(0) / 4, 0));
  const Floats gradient(settings.model.sum_bytes(0) / 4, -1);
  const auto send = [&](int worker, std::int64_t round) {
    return server.ask(worker,
                      {.ask = Ask::Terms,
                       .worker = worker,
                       .round = round,
                       .rate = 0.5,
                       .scale = 1.0 / 3,
                       .total = 4,
                       .nodes = {{static_cast<std::uint32_t>(worker), 1}}},
                      bytes_of(gradient));
  };
  server.ask(3, {.ask = Ask::Leave, .worker = 3});
  EXPECT_EQ(send(0, 0), nullptr);
  EXPECT_EQ(send(1, 0), nullptr);
  EXPECT_NE(send(2, 0), nullptr);
  server.ask(2, {.ask = Ask::Pull, .worker = 2});
  EXPECT_FLOAT_EQ(server.floats(2).front(), 0.5F);
  server.ask(2, {.ask = Ask::Leave, .worker = 2});
  EXPECT_EQ(send(0, 1), nullptr);
  EXPECT_NE(send(1, 1), nullptr);
  server.ask(0, {.ask = Ask::Pull, .worker = 0});
  EXPECT_FLOAT_EQ(server.floats(0).front(), 1.0F) << "by the mean of two";
}

// A worker's number says which term of the sum its gradient is.
TEST(BackupWorkers, OneBeyondTheJobsWorkersIsRefused) {
  Two two;
  const Reply* reply = two.server.attach(2, two.settings);
  EXPECT_EQ(reply->exit_code, 23);
  EXPECT_EQ(reply->text,
            "server 0 refuses worker 2: the job has 2 workers. With server.backup a step takes the "
            "gradients of a fixed number of workers: start no more, or use server.staleness");
}

// Fresh gradients take weights from w to 2 w + 1, so that they are 2^n - 1 after n rounds. A gradient of
// older weights is smaller, and what it makes is no such number.
double rounds_of(std::span<const std::byte> weights) {
  float value = 0;
  std::memcpy(&value, weights.data(), sizeof value);
  return std::log2(value + 1.0);
}

void fill_gradients(ParameterClient& client) {
  for (int server = 0; server < client.servers(); ++server) {
    const auto gradient = static_cast<float>(-std::exp2(rounds_of(client.weights(server))));
    const std::span<std::byte> memory = client.gradient(server);
    Floats values(memory.size() / sizeof(float), gradient);
    if (!values.empty()) std::memcpy(memory.data(), values.data(), memory.size());
  }
}

// Workers that are killed at any moment, until there were `steps` rounds at each server.
void train(SimCluster& cluster, const Settings& settings, double steps) {
  bool enough = false;
  const double needed = settings.workers - settings.server.backup;
  cluster.run(settings, [&](int worker, ParameterClient& client, Waiter& waiter) {
    if (worker == 0 && !client.ready())
      for (int server = 0; server < client.servers(); ++server)
        client.write(server, {SavedText{}.to_text(),
                              std::vector<std::byte>(client.settings().model.bytes(server))});
    client.pull();
    while (!enough && !::testing::Test::HasFailure()) {
      bool all = true;
      for (int server = 0; server < client.servers(); ++server) {
        const double rounds = rounds_of(client.weights(server));
        EXPECT_EQ(rounds, std::round(rounds)) << "server " << server << ": an old gradient";
        all = all && rounds >= steps;
      }
      enough = enough || all;
      if (enough) return;
      fill_gradients(client);
      waiter.sleep(std::chrono::microseconds(cluster.draw(100)));
      client.update({{static_cast<std::uint32_t>(worker), 1}},
                    static_cast<std::uint32_t>(settings.workers), 1, 1 / needed);
    }
  });
  EXPECT_EQ(cluster.failures, std::vector<std::string>());
}

TEST(BackupWorkers, ThoseThatAreKilledLeaveNoRoundUndoneAndNobodyWaiting) {
  int killed = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int workers = 2 + static_cast<int>(seed % 3), servers = 1 + static_cast<int>(seed % 4);
    const Settings settings = settings_of(workers, servers, servers > 1 && seed % 5 == 0 ? 2 : 1);
    SimCluster cluster(seed, workers, servers, seed % 7 == 0 ? 2000 : 0);
    cluster.on_applied = [&](const Applied&) {
      if (cluster.draw(6) == 0)
        cluster.kill_worker(static_cast<int>(cluster.draw(static_cast<std::uint64_t>(workers))));
      if (settings.server.replicas > 1 && cluster.draw(12) == 0)
        cluster.kill_server(static_cast<int>(cluster.draw(static_cast<std::uint64_t>(servers))));
    };
    train(cluster, settings, 12);
    killed += cluster.num_killed;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GE(killed, 200);
}

}  // namespace
}  // namespace trireme::backup_workers_test
