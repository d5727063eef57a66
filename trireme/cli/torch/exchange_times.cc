#include "trireme/cli/torch/exchange_times.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "trireme/base/file.h"
#include "trireme/base/refuse.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/base/words.h"
#include "trireme/cli/torch/simulated_servers.h"
#include "trireme/comm/choice/cost.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/comm/simulate.h"
#include "trireme/plan/communication.h"
#include "trireme/ps/server/server.h"

namespace trireme::inline v0::cli {
namespace {

constexpr int kExchanges = 60, kRuns = 3;  // exchanges with servers; runs of `bench comm`

// Sleeps until the next full hour of the virtual clock, when all ranks begin.
TimePoint begin_together(Waiter& waiter) {
  constexpr Duration kHour = std::chrono::hours(1);
  waiter.sleep(kHour - waiter.now().time_since_epoch() % kHour);
  return waiter.now();
}

double simulated_servers(const ExchangeWay& way, const plan::LinkCost& link, int workers,
                         std::size_t bytes) {
  double longest = 0;
  simulate_servers(settings_of(workers, way.servers, bytes), link, /*seed=*/1, {},
                   [&](int worker, ps::ParameterClient& client, Waiter& waiter) {
                     const TimePoint begin = begin_together(waiter);
                     exchange(client, worker);
                     longest = std::max(longest, to_seconds(waiter.now() - begin));
                   });
  return longest;
}

double simulated_all_reduce(const ExchangeWay& way, const plan::LinkCost& link, int ranks,
                            std::size_t bytes) {
  comm::SimulationOptions options{
      .network = net::cluster(Duration(std::llround(link.alpha * 1e9)), 1 / link.beta)};
  options.network.charge_computing = false;
  double longest = 0;
  comm::simulate(ranks, options, [&](comm::SimulatedRank& rank) {
    std::vector<float> sum(bytes / sizeof(float), 1);
    const TimePoint begin = begin_together(*rank.waiter);
    rank.world->all_reduce(Buffer::of(std::span<float>(sum)), Sum, {.algorithm = way.all_reduce})
        .wait();
    longest = std::max(longest, to_seconds(rank.waiter->now() - begin));
  });
  return longest;
}

net::ChannelOptions loopback() {
  net::ChannelOptions options;
  options.secret = "of this process";
  options.max_frame_bytes = std::size_t{1} << 31;
  return options;
}

std::vector<double> exchange_times(const ps::Settings& settings, int worker,
                                   const std::vector<std::string>& servers) {
  const auto waiter = RealWaiter::make();
  const auto dial = [&](int server) {
    return net::dial_channel(waiter, servers[static_cast<std::size_t>(server)], loopback());
  };
  // A server that ends does not come back.
  ps::ParameterClient client(waiter, settings,
                             {.worker = worker, .dial = dial, .patience = Duration::zero()});
  begin_with_zeros(client, worker);
  std::vector<double> times;
  for (int i = 0; i < kExchanges; ++i) {
    const TimePoint begin = waiter->now();
    exchange(client, worker);
    times.push_back(to_seconds(waiter->now() - begin));
  }
  return times;
}

// One thread for each server and worker. Worker 0 takes the times.
double measured_servers(const ExchangeWay& way, int workers, std::size_t bytes) {
  const ps::Settings settings = settings_of(workers, way.servers, bytes);
  std::vector<std::shared_ptr<RealWaiter>> waiters;
  std::vector<std::unique_ptr<net::Acceptor>> acceptors;
  std::vector<std::string> addresses;
  for (int server = 0; server < way.servers; ++server) {
    waiters.push_back(RealWaiter::make());
    acceptors.push_back(net::listen_channels(waiters.back(), loopback()));
    addresses.push_back(acceptors.back()->address());
  }
  std::atomic<bool> ended = false;
  const auto end = [&] {
    ended = true;
    for (const auto& waiter : waiters) waiter->wake();
  };
  std::mutex mutex;
  std::exception_ptr error;  // the first
  // Ends the servers after an error, so that no thread waits for the one that failed.
  const auto guarded = [&](const auto& body) {
    try {
      body();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      end();
    }
  };
  std::vector<double> times;
  std::vector<std::jthread> servers, threads;
  guarded([&] {
    for (int server = 0; server < way.servers; ++server) {
      const auto at = static_cast<std::size_t>(server);
      servers.emplace_back([&, server, waiter = waiters[at], own = std::move(acceptors[at])] {
        guarded([&] {
          ps::ParameterServer(waiter, *own, {.number = server}).run([&] { return ended.load(); });
        });
      });
    }
    for (int worker = 0; worker < workers; ++worker)
      threads.emplace_back([&, worker] {
        guarded([&] {
          std::vector<double> own = exchange_times(settings, worker, addresses);
          if (worker == 0) times = std::move(own);
        });
      });
  });
  threads.clear();  // joins them
  end();
  servers.clear();
  if (error) std::rethrow_exception(error);
  return *std::min_element(times.begin(), times.end());
}

// The median of one run of `bench comm`.
double run_all_reduce(const ExchangeWay& way, int ranks, std::size_t bytes, OwnRuns& runs) {
  const int code =
      runs.run({"bench", "comm", "all-reduce", "--ranks", std::to_string(ranks), "--transport",
                "tcp", "--algorithm", way.all_reduce, "--sizes", std::to_string(bytes), "--json"},
               "comm.log");
  std::istringstream lines(
      read_file(runs.folder().file("comm.log"), "",
                {.operation = "bench server", .advice = "Set TMPDIR to a folder with room."}));
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_object() && event.contains("seconds")) return event["seconds"];
  }
  refuse("bench server",
         "bench comm on " + counted(ranks, "rank") + " ended with " + std::to_string(code) +
             " and no figure",
         "Try it alone: trireme bench comm all-reduce --transport tcp.");
}

double measured_all_reduce(const ExchangeWay& way, int ranks, std::size_t bytes, OwnRuns& runs) {
  double least = run_all_reduce(way, ranks, bytes, runs);
  for (int i = 1; i < kRuns; ++i) least = std::min(least, run_all_reduce(way, ranks, bytes, runs));
  return least;
}

}  // namespace

std::string name_of(const ExchangeWay& way) {
  return way.servers > 0 ? counted(way.servers, "server") : "all-reduce " + way.all_reduce;
}

double predicted_exchange(const ExchangeWay& way, const plan::LinkCost& link, int workers,
                          std::size_t bytes) {
  if (way.servers > 0)
    return plan::server_exchange_seconds({link.alpha, link.beta, 0}, workers, way.servers,
                                         static_cast<double>(bytes));
  if (workers == 1) return 0;
  const auto* entry = comm::find_algorithm(comm::OpKind::AllReduce, way.all_reduce);
  const plan::CostShape shape =
      comm::shape_of(*entry, workers, static_cast<std::uint32_t>(workers));
  // The messages of a round share one latency on the link; the header is one more round.
  return (1 + shape.rounds) * link.alpha + shape.sent * static_cast<double>(bytes) * link.beta;
}

double simulated_exchange(const ExchangeWay& way, const plan::LinkCost& link, int workers,
                          std::size_t bytes) {
  if (way.servers > 0) return simulated_servers(way, link, workers, bytes);
  return workers == 1 ? 0 : simulated_all_reduce(way, link, workers, bytes);
}

double measured_exchange(const ExchangeWay& way, int workers, std::size_t bytes, OwnRuns& runs) {
  runs.check_stop();
  if (way.servers > 0) return measured_servers(way, workers, bytes);
  return workers == 1 ? 0 : measured_all_reduce(way, workers, bytes, runs);
}

plan::LinkCost measured_link(std::size_t bytes, OwnRuns& runs) {
  constexpr std::size_t kSmall = 64, kLeastLarge = 64 << 10;
  bytes = std::max(bytes, kLeastLarge);  // else the difference is noise
  const ExchangeWay way{.servers = 1};
  const double large = measured_exchange(way, 1, bytes, runs);
  const double small = measured_exchange(way, 1, kSmall, runs);
  const double beta = (large - small) / 2 / static_cast<double>(bytes - kSmall);
  return {.alpha = small / 4, .beta = std::max(beta, 1e-12), .gamma = 0};
}

}  // namespace trireme::inline v0::cli
