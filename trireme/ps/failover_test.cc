// Servers and workers that are killed at any moment of the protocol, on the simulated network: every
// push that was acknowledged is applied once, and the weights are those of the pushes in the order in
// which the primaries applied them.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "trireme/base/error.h"
#include "trireme/ps/sim_cluster_test.h"

namespace trireme::failover_test {
namespace {

using namespace trireme::ps;
using Floats = std::vector<float>;
using Push = std::pair<int, std::uint64_t>;  // worker, sequence

constexpr double kRate = 0.25;

Settings settings_of(std::int64_t staleness, int workers, int servers, int replicas,
                     double compensation = 0) {
  return {
      .model = ServedModel({{.name = "w", .shape = {9000}}, {.name = "b", .shape = {3}}}, servers),
      .optimizer = Sgd{.learning_rate = 1, .momentum = 0.9},
      .workers = workers,
      .server = {.staleness = staleness, .compensation = compensation, .replicas = replicas}};
}

// Differs with every bit that it depends on, so that order shows.
Floats gradient_of(int shard, Push push, std::size_t bytes) {
  std::mt19937 random(static_cast<unsigned>(shard * 1'000'003 + push.first * 10'007) +
                      static_cast<unsigned>(push.second));
  std::uniform_real_distribution<float> values(-1, 1);
  Floats all(bytes / sizeof(float));
  for (float& value : all) value = values(random);
  return all;
}

void put(std::span<std::byte> to, const Floats& values) {
  ASSERT_EQ(to.size(), values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(to.data(), values.data(), to.size());
}

Floats floats(std::span<const std::byte> memory) {
  Floats values(memory.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), memory.data(), memory.size());
  return values;
}

void write_zeros(ParameterClient& client) {
  for (int shard = 0; shard < client.servers(); ++shard)
    client.write(shard, {SavedText{}.to_text(),
                         std::vector<std::byte>(client.settings().model.bytes(shard))});
}

void push_one(int worker, ParameterClient& client) {
  const Push next{worker, client.pushes() + 1};
  for (int shard = 0; shard < client.servers(); ++shard) {
    const std::span<std::byte> memory = client.gradient(shard);
    put(memory, gradient_of(shard, next, memory.size()));
  }
  client.push(kRate, 1);
}

// The weights after the pushes of a history, computed by one service alone.
Floats replay(const Settings& settings, int shard, const History& history) {
  Floats weights;
  Service service(shard, [&](int, const Reply& reply, std::span<const std::byte> memory) {
    EXPECT_EQ(reply.exit_code, 0) << reply.text;
    weights = floats(memory);
  });
  const auto ask = [&](Request request, std::span<const std::byte> memory) {
    service.handle(request.worker, request, memory);
  };
  const std::string text = settings.to_text();
  std::set<int> workers = {0};
  for (const auto& [version, one] : history.updates) workers.insert(one.worker);
  for (const int worker : workers)
    ask({.ask = Ask::Attach, .worker = worker, .text_bytes = text.size()},
        std::as_bytes(std::span(text)));
  std::string all = SavedText{}.to_text();
  const std::size_t bytes = settings.model.bytes(shard), text_bytes = all.size();
  all.append(bytes, '\0');
  ask({.ask = Ask::Write, .text_bytes = text_bytes}, std::as_bytes(std::span(all)));
  for (const auto& [version, one] : history.updates) {
    const Floats gradient = gradient_of(shard, {one.worker, one.sequence}, bytes);
    ask({.ask = Ask::Push, .worker = one.worker, .sequence = one.sequence, .rate = kRate},
        std::as_bytes(std::span(gradient)));
  }
  ask({.ask = Ask::Pull}, {});
  return weights;
}

struct Ledger {
  std::set<Push> acknowledged;
  std::vector<Floats> last;  // by shard: the weights after all pushes
};

// Every acknowledged push is in each shard's history exactly once, and the weights are its.
void expect_all_applied_once(const SimCluster& cluster, const Settings& settings,
                             const Ledger& ledger) {
  ASSERT_EQ(cluster.failures, std::vector<std::string>());
  ASSERT_EQ(ledger.last.size(), cluster.histories.size());
  for (std::size_t shard = 0; shard < ledger.last.size(); ++shard) {
    const History& history = cluster.histories[shard];
    std::map<Push, int> times;
    for (const auto& [version, one] : history.updates) ++times[{one.worker, one.sequence}];
    for (const auto& [push, count] : times) EXPECT_EQ(count, 1);
    for (const Push& push : ledger.acknowledged)
      EXPECT_EQ(times.count(push), 1u) << "worker " << push.first << ", push " << push.second;
    EXPECT_EQ(ledger.last[shard], replay(settings, static_cast<int>(shard), history));
  }
}

// Workers push `steps` times each; after each update one in `odds` of them calls `strike`.
Ledger train(SimCluster& cluster, const Settings& settings, int steps, std::uint64_t odds,
             const std::function<void()>& strike) {
  Ledger ledger;
  std::map<int, int> done;
  cluster.on_applied = [&](const Applied&) {
    if (cluster.draw(odds) == 0) strike();
  };
  cluster.run(settings, [&](int worker, ParameterClient& client, Waiter& waiter) {
    if (worker == 0 && !client.ready()) write_zeros(client);
    client.pull();
    while (done[worker] < steps) {
      push_one(worker, client);
      ++done[worker];
      ledger.acknowledged.insert({worker, client.pushes()});
      waiter.sleep(std::chrono::microseconds(cluster.draw(300)));
    }
    for (int other = 0; other < cluster.workers(); ++other)
      if (done[other] < steps) return;
    client.pull();
    ledger.last.clear();
    for (int shard = 0; shard < client.servers(); ++shard)
      ledger.last.push_back(floats(client.weights(shard)));
  });
  return ledger;
}

// Worker 1 takes a second for its step, and worker 0 may be one step ahead of it.
TEST(ParameterClient, CountsTheTimeThatItWaits) {
  SimCluster cluster(1, 2, 1);
  Duration waited[2];
  cluster.run(settings_of(1, 2, 1, 1), [&](int worker, ParameterClient& client, Waiter& waiter) {
    if (worker == 0) write_zeros(client);
    client.pull();
    const Duration before = client.time_waited();
    if (worker == 1) waiter.sleep(std::chrono::seconds(1));
    for (int push = 0; push < 2 - worker; ++push) push_one(worker, client);
    waited[worker] = client.time_waited() - before;
  });
  EXPECT_EQ(cluster.failures, std::vector<std::string>());
  EXPECT_GT(to_seconds(waited[0]), 0.9);
  EXPECT_LT(to_seconds(waited[1]), 0.1);
}

// A run's last worker reads the weights when all have pushed.
TEST(FailOver, ServersThatAreKilledLoseNoAcknowledgedPush) {
  int killed = 0, most = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int servers = 2 + static_cast<int>(seed % 2);
    const Settings settings = settings_of(seed % 3 == 0 ? 2 : -1, 3, servers, 2);
    SimCluster cluster(seed, 3, servers, seed % 4 == 0 ? 2000 : 0);
    const Ledger ledger = train(cluster, settings, 12, 12, [&] {
      cluster.kill_server(static_cast<int>(cluster.draw(static_cast<std::uint64_t>(servers))));
    });
    EXPECT_EQ(ledger.acknowledged.size(), 36u);
    expect_all_applied_once(cluster, settings, ledger);
    killed += cluster.num_killed;
    most = std::max(most, cluster.num_killed);
    if (HasFailure()) return;
  }
  EXPECT_GE(killed, 200);
  EXPECT_GE(most, 3);
}

TEST(FailOver, WorkersThatAreKilledAndJoinLeaveEveryAcknowledgedPushOnce) {
  int killed = 0;
  for (std::uint64_t seed = 1; killed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    // In some runs two of the four came when the job had begun.
    const int at_start = seed % 3 == 0 ? 2 : 4;
    const Settings settings = settings_of(seed % 2 == 0 ? 2 : -1, at_start, 2, 1 + seed % 2);
    SimCluster cluster(seed, 4, 2);
    const Ledger ledger = train(cluster, settings, 12, 6,
                                [&] { cluster.kill_worker(static_cast<int>(cluster.draw(4))); });
    expect_all_applied_once(cluster, settings, ledger);
    killed += cluster.num_killed;
    if (HasFailure()) return;
    ASSERT_LT(seed, 1000u);
  }
}

TEST(FailOver, APrimaryThatIsCutOffAcknowledgesNothing) {
  int fenced = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int servers = 2 + static_cast<int>(seed % 3);
    const Settings settings = settings_of(-1, 3, servers, 2 + static_cast<int>(seed % 3) / 2);
    SimCluster cluster(seed, 3, servers);
    const Ledger ledger = train(cluster, settings, 12, 12, [&] {
      cluster.isolate_server(static_cast<int>(cluster.draw(static_cast<std::uint64_t>(servers))));
    });
    expect_all_applied_once(cluster, settings, ledger);
    fenced += cluster.num_fenced;
    if (HasFailure()) return;
  }
  EXPECT_GE(fenced, 30);
}

// All connections to the server that comes in place of a lost one are waited for in vain.
TEST(FailOver, AReplacementThatNobodyReachesHoldsUpNoWorker) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SimCluster cluster(seed, 1, 2);
    cluster.run(settings_of(-1, 1, 2, 2), [&](int worker, ParameterClient& client, Waiter& waiter) {
      write_zeros(client);
      client.pull();
      push_one(worker, client);
      const auto& view = cluster.view();
      waiter.wait_until([&] { return view.has_copy(0, 1) && view.has_copy(1, 0); },
                        TimePoint::max());
      cluster.hanging = 1;
      cluster.kill_server(1);
      waiter.wait_until([&] { return view.lives(1, 2); }, TimePoint::max());
      for (int push = 0; push < 20; ++push) {
        const TimePoint begun = waiter.now();
        push_one(worker, client);
        EXPECT_LT(waiter.now() - begun, std::chrono::seconds(1)) << "seed " << seed;
        waiter.sleep(std::chrono::milliseconds(300));
      }
    });
    EXPECT_EQ(cluster.failures, std::vector<std::string>());
    EXPECT_EQ(cluster.num_killed, 1);
  }
}

// The weights take 10 s to a copy, twice the servers' patience, and all of a shard takes longer than that
// of workers.
TEST(FailOver, ASlowNetworkIsNoDeadServer) {
  const Settings settings = settings_of(-1, 1, 2, 2);
  const double bytes_per_second = static_cast<double>(settings.model.bytes(0)) / 10;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimCluster cluster(seed, 1, 2, {.bytes_per_second = bytes_per_second, .socket_bytes = 4096});
    Ledger ledger;
    const TimePoint begin = cluster.now();
    cluster.run(settings, [&](int worker, ParameterClient& client, Waiter& waiter) {
      EXPECT_LT(to_seconds(waiter.now() - begin), 10)
          << "no copy is sent as a whole when the job begins";
      write_zeros(client);
      client.pull();
      push_one(worker, client);
      ledger.acknowledged.insert({worker, client.pushes()});
      client.pull();
      for (int shard = 0; shard < 2; ++shard) ledger.last.push_back(floats(client.weights(shard)));
    });
    expect_all_applied_once(cluster, settings, ledger);
    EXPECT_EQ(cluster.num_unreachable, 0);
  }
}

// With delay compensation a copy also has the weights that each worker had.
TEST(FailOver, CopiesHaveTheWeightsThatWorkersHadBefore) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Settings settings = settings_of(-1, 1, 2, 2, 0.5);
    std::vector<Floats> last[2];
    for (const bool strikes : {false, true}) {
      SimCluster cluster(seed, 1, 2);
      last[strikes] = train(cluster, settings, 20, 5, [&] {
                        if (strikes) cluster.kill_server(static_cast<int>(cluster.draw(2)));
                      }).last;
      ASSERT_EQ(cluster.failures, std::vector<std::string>());
      EXPECT_EQ(cluster.num_killed > 0, strikes);
    }
    EXPECT_EQ(last[0], last[1]);
  }
}

// Synchronous training has the bits of an undisturbed run.
TEST(FailOver, SynchronousTrainingEndsWithTheSameBits) {
  constexpr int kSteps = 12, kWorkers = 3;
  int killed = 0;
  for (const int backup : {0, 1}) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Settings settings = settings_of(0, kWorkers, 2, 2);
      settings.server.backup = backup;
      Floats last[2];
      for (const bool strikes : {false, true}) {
        SimCluster cluster(seed, kWorkers, 2, strikes && seed % 4 == 0 ? 2000 : 0);
        cluster.on_applied = [&](const Applied&) {
          if (strikes && cluster.draw(8) == 0)
            cluster.kill_server(static_cast<int>(cluster.draw(2)));
        };
        cluster.run(settings, [&](int worker, ParameterClient& client, Waiter&) {
          if (worker == 0) write_zeros(client);
          client.pull();
          const std::uint32_t total = 5;
          const auto nodes =
              kernel::maximal_nodes(kernel::contiguous_share(total, kWorkers, worker), total);
          for (int step = 0; step < kSteps; ++step) {
            for (int shard = 0; shard < 2; ++shard) {
              const std::span<std::byte> memory = client.gradient(shard, nodes.size());
              put(memory, gradient_of(shard, {worker, step}, memory.size()));
            }
            if (backup > 0) {
              client.update(nodes, total, kRate, 0.5);
              continue;
            }
            EXPECT_EQ(client.sum(nodes, total).squares.size(), 4u);
            client.commit(kRate, 0.5);
          }
          client.pull();
          if (worker == 0 || backup > 0) last[strikes] = floats(client.weights(0));
        });
        ASSERT_EQ(cluster.failures, std::vector<std::string>());
        if (strikes) killed += cluster.num_killed;
      }
      if (backup == 0) {
        EXPECT_EQ(last[0], last[1]);
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_GE(killed, 100);
}

}  // namespace
}  // namespace trireme::failover_test
