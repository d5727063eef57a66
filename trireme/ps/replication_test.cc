// Replicated shards over sockets: servers and workers are threads with waiters of their own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/ps/server/server.h"
#include "trireme/ps/worker/client.h"

namespace trireme::replication_test {
namespace {

using namespace trireme::ps;
using namespace std::chrono_literals;

Settings settings_of(std::int64_t elements, int servers, int replicas) {
  return {.model = ServedModel({{.name = "w", .shape = {elements}}}, servers),
          .optimizer = Sgd{.learning_rate = 1},
          .workers = 1,
          .server = {.staleness = -1, .replicas = replicas}};
}

// Two servers on this host, or at 127.0.0.1, and their authority.
class Servers {
 public:
  explicit Servers(const std::string& host) : authority_(2) {
    for (int server = 0; server < 2; ++server) {
      waiters_.push_back(RealWaiter::make());
      net::ChannelOptions options = channel_options();
      options.host = host;
      acceptors_.push_back(net::listen_channels(waiters_.back(), options));
      authority_.up(server, acceptors_.back()->address());
    }
    publish();
    for (int server = 0; server < 2; ++server)
      threads_.emplace_back([this, server] { serve(server); });
  }
  ~Servers() {
    for (int server = 0; server < 2; ++server) end(server);
  }
  void end(int server) {
    ended_[server] = true;
    waiters_[static_cast<std::size_t>(server)]->wake();
    if (threads_[static_cast<std::size_t>(server)].joinable())
      threads_[static_cast<std::size_t>(server)].join();
  }
  // As after kill -9 of the process.
  void lose(int server) {
    end(server);
    const std::lock_guard lock(mutex_);
    authority_.down(server);
    publish();
  }
  std::shared_ptr<const rendezvous::ServerView> view() const {
    const std::lock_guard lock(view_mutex_);
    return view_;
  }
  std::shared_ptr<net::Channel> dial(const std::shared_ptr<Waiter>& waiter, int server) const {
    if (server < 0) throw PeerLost("nobody has it");
    return net::dial_channel(waiter, view()->servers[static_cast<std::size_t>(server)].address,
                             channel_options());
  }

 private:
  static net::ChannelOptions channel_options() {
    net::ChannelOptions options;
    options.secret = "s3cret";
    options.max_frame_bytes = std::size_t{1} << 32;
    return options;
  }
  void publish() {
    {
      const std::lock_guard lock(view_mutex_);
      view_ = std::make_shared<rendezvous::ServerView>(authority_.view());
    }
    for (const auto& waiter : waiters_) waiter->wake();
  }
  void serve(int server) {
    const auto& waiter = waiters_[static_cast<std::size_t>(server)];
    ParameterServer(waiter, *acceptors_[static_cast<std::size_t>(server)],
                    {.number = server,
                     .contacts = {.view = [this] { return view(); },
                                  .has_copy =
                                      [this, server](int shard, std::uint64_t term, int at,
                                                     std::uint32_t incarnation) {
                                        const std::lock_guard lock(mutex_);
                                        authority_.has_copy(shard, term, server, at, incarnation);
                                        publish();
                                      },
                                  .unreachable = [](int, std::uint32_t) { ADD_FAILURE(); },
                                  .dial =
                                      [this, &waiter](int at, auto to) {
                                        try {
                                          *to = dial(waiter, at);
                                          return Work();
                                        } catch (const Error&) {
                                          return Work::failed(std::current_exception());
                                        }
                                      }}})
        .run([&] { return ended_[server].load(); });
    acceptors_[static_cast<std::size_t>(server)].reset();
  }

  std::mutex mutex_;  // of the authority
  rendezvous::ServerAuthority authority_;
  mutable std::mutex view_mutex_;
  std::shared_ptr<const rendezvous::ServerView> view_;
  std::vector<std::shared_ptr<Waiter>> waiters_;
  std::vector<std::unique_ptr<net::Acceptor>> acceptors_;
  std::array<std::atomic<bool>, 2> ended_{};
  std::vector<std::thread> threads_;
};

// Pushes -1 `pushes` times; in the middle calls `strike`. Returns the weights of both shards.
std::vector<float> train(Servers& servers, const Settings& settings, int pushes,
                         const std::function<void()>& strike) {
  const auto waiter = RealWaiter::make();
  ParameterClient client(
      waiter, settings,
      {.dial = [&](int shard) { return servers.dial(waiter, servers.view()->primary(shard)); },
       .term =
           [&](int shard) {
             return servers.view()->shards[static_cast<std::size_t>(shard)].term;
           }});
  for (int shard = 0; shard < 2; ++shard)
    client.write(shard, {SavedText{}.to_text(),
                         std::vector<std::byte>(client.settings().model.bytes(shard))});
  client.pull();
  const TimePoint start = waiter->now();
  const std::clock_t computed = std::clock();
  for (int push = 0; push < pushes; ++push) {
    if (push == pushes / 2) strike();
    for (int shard = 0; shard < 2; ++shard) {
      const auto memory = client.gradient(shard);
      std::vector<float> values(memory.size() / sizeof(float), -1);
      std::memcpy(memory.data(), values.data(), memory.size());
    }
    client.push(1, 1);
  }
  const double seconds = to_seconds(waiter->now() - start);
  const double cores = static_cast<double>(std::clock() - computed) / CLOCKS_PER_SEC;
  std::printf("%d replicas: %.1f ms and %.1f ms of processor time a push of %.1f MiB\n",
              settings.server.replicas, 1e3 * seconds / pushes, 1e3 * cores / pushes,
              static_cast<double>(4 * settings.model.parameters()[0].count()) / (1 << 20));
  client.pull();
  std::vector<float> all;
  for (int shard = 0; shard < 2; ++shard) {
    const auto weights = client.weights(shard);
    std::vector<float> values(weights.size() / sizeof(float));
    std::memcpy(values.data(), weights.data(), weights.size());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

constexpr std::int64_t kElements = 1 << 18;

TEST(Replication, ALostServerTakesNoPushAlong) {
  for (const char* host : {"", "127.0.0.1"}) {
    for (const int lost : {0, 1}) {
      Servers servers(host);
      const Settings settings = settings_of(kElements, 2, 2);
      const auto weights = train(servers, settings, 20, [&] { servers.lose(lost); });
      EXPECT_EQ(weights, std::vector<float>(kElements, 20)) << host << lost;
    }
  }
}

// Prints what replication costs.
TEST(Replication, NobodyIsLost) {
  for (const char* host : {"", "127.0.0.1"}) {
    for (const int replicas : {1, 2}) {
      Servers servers(host);
      const auto weights = train(servers, settings_of(kElements, 2, replicas), 20, [] {});
      EXPECT_EQ(weights, std::vector<float>(kElements, 20));
    }
  }
}

}  // namespace
}  // namespace trireme::replication_test
