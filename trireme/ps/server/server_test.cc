// Workers and servers over sockets, and over the simulated network with many seeds.
#include "trireme/ps/server/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/sim/sim_channels.h"
#include "trireme/ps/worker/client.h"

namespace trireme::inline v0::ps {
namespace {

using namespace std::chrono_literals;

Settings settings_of(std::int64_t staleness, int workers, int servers, std::int64_t size = 20'000) {
  return {
      .model = ServedModel({{.name = "w", .shape = {size}}, {.name = "b", .shape = {3}}}, servers),
      .optimizer = Sgd{.learning_rate = 1},
      .workers = workers,
      .server = {.staleness = staleness}};
}

// Fills a server's interval with one value.
void fill(std::span<std::byte> memory, float value) {
  std::vector<float> values(memory.size() / sizeof(float), value);
  if (!values.empty()) std::memcpy(memory.data(), values.data(), memory.size());
}

float first(std::span<const std::byte> memory) {
  float value = 0;
  std::memcpy(&value, memory.data(), sizeof value);
  return value;
}

void write_zeros(ParameterClient& client) {
  for (int server = 0; server < client.servers(); ++server)
    client.write(server, {SavedText{}.to_text(),
                          std::vector<std::byte>(client.settings().model.bytes(server))});
}

net::ChannelOptions channel_options(const char* host) {
  net::ChannelOptions options;
  options.secret = "s3cret";
  options.host = host;
  options.max_frame_bytes = std::size_t{1} << 32;
  return options;
}

TEST(ParameterServer, ServesWorkersOverEveryKindOfSocket) {
  for (const char* host : {"", "127.0.0.1"}) {
    const auto waiter = RealWaiter::make();
    const auto acceptor = net::listen_channels(waiter, channel_options(host));
    std::atomic<bool> ended = false;
    std::thread serving(
        [&] { ParameterServer(waiter, *acceptor, {}).run([&] { return ended.load(); }); });
    const Settings settings = settings_of(-1, 2, 1, 3'000'000);
    std::vector<std::thread> workers;
    std::array<float, 2> last{};
    for (int worker = 0; worker < 2; ++worker)
      workers.emplace_back([&, worker] {
        const auto own = RealWaiter::make();
        ParameterClient client(own, settings, {.worker = worker, .dial = [&](int) {
                                                 return net::dial_channel(own, acceptor->address(),
                                                                          channel_options(host));
                                               }});
        if (worker == 0) write_zeros(client);
        client.pull();
        for (int step = 0; step < 20; ++step) {
          fill(client.gradient(0), 1);
          EXPECT_EQ(client.push(0.5, 1), std::nullopt);
        }
        client.pull();
        last[static_cast<std::size_t>(worker)] = first(client.weights(0));
      });
    for (std::thread& worker : workers) worker.join();
    ended = true;
    waiter->wake();
    serving.join();
    EXPECT_EQ(std::min(last[0], last[1]), -20) << host;  // who read last has seen all 40 pushes
  }
}

// A channel that counts what the frames bring that it receives.
class CountedChannel : public net::Channel {
 public:
  explicit CountedChannel(std::shared_ptr<net::Channel> of) : of_(std::move(of)) {}
  /// Bytes of the last frame's payload.
  std::size_t payload() const { return frame_->payload().size(); }

  const net::Identity& peer() const noexcept override { return of_->peer(); }
  Work send(std::span<const std::byte> head, std::span<const std::byte> payload) override {
    return of_->send(head, payload);
  }
  Work receive(net::ChannelFrame& frame) override {
    frame_ = &frame;
    return of_->receive(frame);
  }
  std::optional<net::SharedArea> share(std::size_t bytes) override { return of_->share(bytes); }
  bool share(net::SharedArea& area) override { return of_->share(area); }
  std::span<std::byte> area_of_peer(std::uint32_t id) override { return of_->area_of_peer(id); }
  void close() override { of_->close(); }

 private:
  const std::shared_ptr<net::Channel> of_;
  const net::ChannelFrame* frame_ = nullptr;
};

// A server's end of a channel, where the system has no memory to share.
class ChannelWithoutMemory final : public CountedChannel {
 public:
  using CountedChannel::CountedChannel;
  std::optional<net::SharedArea> share(std::size_t) override {
    throw ResourceError("shared memory is above the limit", {});
  }
};

class AcceptorWithoutMemory final : public net::Acceptor {
 public:
  explicit AcceptorWithoutMemory(net::Acceptor& of) : of_(of) {}
  const std::string& address() const noexcept override { return of_.address(); }
  Work accept(std::shared_ptr<net::Channel>& to) override {
    return of_.accept(to).then(
        [&to] { to = std::make_shared<ChannelWithoutMemory>(std::move(to)); });
  }

 private:
  net::Acceptor& of_;
};

// Workers of the simulated network: ranks 0 ... workers-1; servers follow.
class Simulation {
 public:
  Simulation(std::uint64_t seed, int workers, int servers, int broken_per_million)
      : workers_(workers),
        servers_(servers),
        network_(workers + servers, {.seed = seed}),
        channels_(network_,
                  {.shared_memory = seed % 2 == 0, .broken_per_million = broken_per_million}) {}

  void run(const Settings& settings,
           const std::function<void(int worker, ParameterClient& client, Waiter& waiter)>& work) {
    run_workers([&](int worker, const std::shared_ptr<Waiter>& waiter) {
      ParameterClient client(waiter, settings, options_of(worker));
      work(worker, client, *waiter);
    });
  }
  /// The options of a client that connects as soon as the servers listen.
  ClientOptions options_of(int worker) {
    const auto dial = [this, worker](int server) {
      for (const auto waiter = network_.waiter(worker);; waiter->sleep(1ms)) {
        try {
          return channels_.dial(worker, "sim:" + std::to_string(workers_ + server));
        } catch (const PeerLost&) {
        }
      }
    };
    return {.worker = worker, .dial = dial};
  }
  void run_workers(const std::function<void(int worker, const std::shared_ptr<Waiter>&)>& work) {
    std::atomic<int> ended = 0;
    network_.run([&](int rank) {
      const auto waiter = network_.waiter(rank);
      if (rank >= workers_) {
        const auto acceptor = channels_.listen(rank);
        AcceptorWithoutMemory refusing(*acceptor);
        ParameterServer server(waiter, servers_share ? *acceptor : refusing,
                               {.number = rank - workers_});
        server.run([&] { return ended == workers_; });
        figures.push_back(nlohmann::json::parse(server.service().figures()));
        return;
      }
      work(rank, waiter);
      ++ended;
      wake_all();
    });
  }
  void wake_all() {
    for (int rank = 0; rank < workers_ + servers_; ++rank) network_.waiter(rank)->wake();
  }

  std::vector<nlohmann::json> figures;  // of each server
  bool servers_share = true;

 private:
  const int workers_, servers_;
  net::SimNetwork network_;
  net::SimChannels channels_;
};

// Connections break all the time; every push that was acknowledged must have been applied once.
TEST(ParameterServer, AppliesEveryPushOnceWhateverBreaks) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    for (const std::int64_t staleness : {-1, 2}) {
      constexpr int kSteps = 12, kWorkers = 3;
      Simulation simulation(seed, kWorkers, 2, 60'000);
      std::atomic<int> pushed = 0;
      std::vector<float> last;
      simulation.run(settings_of(staleness, kWorkers, 2),
                     [&](int worker, ParameterClient& client, Waiter&) {
                       if (worker == 0) write_zeros(client);
                       client.pull();
                       for (int step = 0; step < kSteps; ++step) {
                         for (int server = 0; server < 2; ++server)
                           fill(client.gradient(server), -1);
                         client.push(1, 1);
                       }
                       if ((pushed += kSteps) < kSteps * kWorkers) return;
                       client.pull();
                       for (int server = 0; server < 2; ++server)
                         last.push_back(first(client.weights(server)));
                     });
      EXPECT_EQ(last, std::vector<float>(2, kSteps * kWorkers)) << "seed " << seed;
      for (const nlohmann::json& server : simulation.figures)
        for (const auto& [worker, of] : server["workers"].items())
          EXPECT_EQ(of["pushes"], kSteps) << server.dump();
    }
  }
}

TEST(ParameterServer, SynchronousRoundsAreCommittedOnceWhateverBreaks) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    constexpr int kSteps = 10, kWorkers = 3;
    Simulation simulation(seed, kWorkers, 2, 60'000);
    std::vector<float> last(kWorkers);
    simulation.run(settings_of(0, kWorkers, 2), [&](int worker, ParameterClient& client, Waiter&) {
      if (worker == 0) write_zeros(client);
      client.pull();
      const kernel::LeafRange share = kernel::contiguous_share(5, kWorkers, worker);
      const auto nodes = kernel::maximal_nodes(share, 5);
      for (int step = 0; step < kSteps; ++step) {
        for (int server = 0; server < 2; ++server) fill(client.gradient(server, nodes.size()), -1);
        const auto sums = client.sum(nodes, 5);
        EXPECT_EQ(sums.squares.size(), 6u);  // five chunks of w, one of b
        EXPECT_EQ(sums.not_finite, -1);
        client.commit(1, 1);
      }
      last[static_cast<std::size_t>(worker)] = first(client.weights(0));
    });
    std::size_t nodes = 0;
    for (int worker = 0; worker < kWorkers; ++worker)
      nodes += kernel::maximal_nodes(kernel::contiguous_share(5, kWorkers, worker), 5).size();
    EXPECT_EQ(last, std::vector<float>(kWorkers, static_cast<float>(kSteps * nodes)));
    for (const nlohmann::json& server : simulation.figures) EXPECT_EQ(server["version"], kSteps);
  }
}

TEST(ParameterServer, AReplyThatIsInSharedMemoryDoesNotCarryTheOneBefore) {
  for (const std::int64_t staleness : {-1, 0}) {
    Simulation simulation(/*seed=*/2, 1, 1, 0);  // an even seed: areas are shared
    simulation.run_workers([&](int worker, const std::shared_ptr<Waiter>& waiter) {
      std::shared_ptr<CountedChannel> channel;
      ClientOptions options = simulation.options_of(worker);
      options.dial = [&channel, dial = options.dial](int server) {
        return channel = std::make_shared<CountedChannel>(dial(server));
      };
      ParameterClient client(waiter, settings_of(staleness, 1, 1), options);
      write_zeros(client);
      client.pull();
      const std::size_t saved = client.read(0).memory.size();
      EXPECT_GE(channel->payload(), saved) << "a checkpoint travels in the frame";
      fill(client.gradient(0), -1);
      if (staleness != 0) {
        client.push(1, 1);
      } else {
        client.sum({{0, 1}}, 1);
        EXPECT_EQ(channel->payload(), 0u) << "the sums";
        client.commit(1, 1);
      }
      EXPECT_EQ(channel->payload(), 0u) << "the weights";
      EXPECT_EQ(first(client.weights(0)), 1);
      client.pull();
      EXPECT_EQ(channel->payload(), 0u) << "the weights again";
    });
  }
}

// They send the weights then.
TEST(ParameterServer, ServersGoOnWithoutMemoryThatIsRefused) {
  Simulation simulation(/*seed=*/2, 2, 1, 0);
  simulation.servers_share = false;
  simulation.run(settings_of(0, 2, 1), [&](int worker, ParameterClient& client, Waiter&) {
    if (worker == 0) write_zeros(client);
    client.pull();
    fill(client.gradient(0), -1);
    client.sum({{static_cast<std::uint32_t>(worker), 1}}, 2);
    client.commit(1, 1);
    EXPECT_EQ(first(client.weights(0)), 2);
  });
}

// Worker 0 leaves between its sends to the two servers: one has closed a round that the other one is still in.
// A worker that begins now is in another round at each of them.
TEST(ParameterServer, ABackupWorkersRoundIsThatOfEachServer) {
  constexpr int kSteps = 3;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Simulation simulation(seed, 3, 2, 0);
    Settings settings = settings_of(0, 3, 2);
    settings.server.backup = 1;
    std::atomic<bool> closed = false;
    std::atomic<int> done = 0;
    const auto step = [&](ParameterClient& client, int worker) {
      for (int server = 0; server < 2; ++server) fill(client.gradient(server), -1);
      client.update({{static_cast<std::uint32_t>(worker), 1}}, 3, 1, 0.5);
    };
    simulation.run_workers([&](int worker, const std::shared_ptr<Waiter>& waiter) {
      const ClientOptions options = simulation.options_of(worker);
      if (worker == 0) {
        ShardLink link(waiter, 0, settings.to_text(), options);
        link.connect();
        link.ask({.ask = Ask::Pull}, 0, settings.model.bytes(0));
        link.finish();
        const std::size_t bytes = settings.model.sum_bytes(0);
        fill(link.outgoing(bytes), -1);
        link.ask({.ask = Ask::Terms, .rate = 1, .scale = 0.5, .total = 3, .nodes = {{0, 1}}}, bytes,
                 0);
        link.finish();
        link.close();
        closed = true;
        simulation.wake_all();
        waiter->wait_until([&] { return done == 2; }, TimePoint::max());
        return;
      }
      if (worker == 2) waiter->wait_until([&] { return closed.load(); }, TimePoint::max());
      ParameterClient client(waiter, settings, options);
      if (worker == 1) write_zeros(client);
      client.pull();
      for (int i = 0; i < kSteps; ++i) step(client, worker);
      ++done;
      simulation.wake_all();
    });
    EXPECT_EQ(done, 2) << "seed " << seed;
  }
}

// Worker 2 is lost at some point of its step. The others give up what they wait for, and do that step
// again, unless it was committed.
TEST(ParameterServer, WorkersOfTheNextEpochDoTheStepOfALostOneAgain) {
  constexpr int kSteps = 8, kWorkers = 3;
  constexpr std::uint32_t kLeaves = 5;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Simulation simulation(seed, kWorkers, 2, 20'000);
    std::atomic<bool> lost = false;
    std::atomic<int> left = 0;
    std::atomic<std::int64_t> newest = 0;
    const auto broken = [&](bool commits) -> std::exception_ptr {
      return lost && !commits ? std::make_exception_ptr(PeerLost("worker 2 is lost")) : nullptr;
    };
    const auto step = [&](ParameterClient& client, int worker, int workers, bool dies) {
      std::vector<kernel::LeafRange> nodes;
      const kernel::LeafRange share = kernel::contiguous_share(kLeaves, workers, worker);
      for (std::uint32_t leaf = share.first; leaf < share.end(); ++leaf) nodes.push_back({leaf, 1});
      if (dies && seed % 3 == 0) return;
      for (int server = 0; server < 2; ++server) fill(client.gradient(server, nodes.size()), -1);
      client.sum(nodes, kLeaves);
      if (dies && seed % 3 == 1) return;
      client.commit(1, 1);
    };
    simulation.run_workers([&](int worker, const std::shared_ptr<Waiter>& waiter) {
      ClientOptions options = simulation.options_of(worker);
      options.broken = broken;
      try {
        ParameterClient client(waiter, settings_of(0, kWorkers, 2), options);
        if (worker == 0) write_zeros(client);
        client.pull();
        for (int done = 0;; ++done) {
          const bool dies = worker == 2 && done == static_cast<int>(seed % 5);
          step(client, worker, kWorkers, dies);
          if (worker != 2) newest = std::max(newest.load(), client.version());
          if (!dies) continue;
          lost = true;
          simulation.wake_all();
          return;
        }
      } catch (const PeerLost&) {
      }
      ++left;
      simulation.wake_all();
      waiter->wait_until([&] { return left == 2; }, TimePoint::max());
      options.broken = [](bool) { return nullptr; };
      options.epoch = 1;
      ParameterClient client(waiter, settings_of(0, 2, 2), options);
      client.begin(newest, /*kept=*/true);
      EXPECT_TRUE(client.ready()) << "seed " << seed;
      for (std::int64_t done = newest; done < kSteps; ++done) step(client, worker, 2, false);
      EXPECT_EQ(client.version(), kSteps);
      for (int server = 0; server < 2; ++server)
        EXPECT_EQ(first(client.weights(server)), kSteps * kLeaves) << "seed " << seed;
    });
  }
}

// With a bound of s, no worker is more than s pushes ahead of the slowest.
TEST(ParameterServer, NobodyGetsFurtherAheadThanTheBound) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    constexpr int kSteps = 15, kWorkers = 3;
    Simulation simulation(seed, kWorkers, 1, 0);
    std::array<std::atomic<int>, kWorkers> clock{};
    int most = 0;
    simulation.run(settings_of(3, kWorkers, 1),
                   [&](int worker, ParameterClient& client, Waiter& waiter) {
                     if (worker == 2) write_zeros(client);  // the others wait until it is here
                     client.pull();
                     for (int step = 0; step < kSteps; ++step) {
                       if (worker == 2) waiter.sleep(5ms);
                       fill(client.gradient(0), -1);
                       client.push(1, 1);
                       ++clock[static_cast<std::size_t>(worker)];
                       if (clock[2] < kSteps)
                         most = std::max(most, clock[static_cast<std::size_t>(worker)] - clock[2]);
                     }
                   });
    EXPECT_LE(most, 4) << seed;  // the slowest has pushed before it hears of it
    EXPECT_GE(most, 3) << seed;
  }
}

// The others have gone on meanwhile, and do not wait until it has made as many steps.
TEST(ParameterServer, NobodyWaitsForTheStepsThatAnUnconnectedWorkerHasMissed) {
  constexpr int kMissed = 40, kSteps = 10;
  Simulation simulation(/*seed=*/1, 2, 1, 0);
  std::shared_ptr<net::Channel> channel;  // worker 1's
  std::atomic<int> pushed = 0;            // by worker 0
  std::atomic<bool> away = false, ended = false;
  const Settings settings = settings_of(2, 2, 1);
  simulation.run_workers([&](int worker, const std::shared_ptr<Waiter>& waiter) {
    ClientOptions options = simulation.options_of(worker);
    if (worker == 1)
      options.dial = [&, dial = options.dial](int server) { return channel = dial(server); };
    const auto step = [&](ParameterClient& client) {
      fill(client.gradient(0), -1);
      client.push(1, 1);
      waiter->sleep(1ms);
    };
    ParameterClient client(waiter, settings, options);
    if (worker == 0) write_zeros(client);
    client.pull();
    if (worker == 0) {
      waiter->wait_until([&] { return away.load(); }, TimePoint::max());
      for (; !ended; simulation.wake_all()) {
        step(client);
        ++pushed;
      }
      return;
    }
    channel->close();
    away = true;
    simulation.wake_all();
    waiter->wait_until([&] { return pushed >= kMissed; }, TimePoint::max());
    for (int i = 0; i < kSteps; ++i) step(client);
    EXPECT_GE(pushed, kMissed + kSteps / 2);
    ended = true;
  });
}

}  // namespace
}  // namespace trireme::inline v0::ps
