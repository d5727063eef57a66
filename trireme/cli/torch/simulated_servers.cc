#include "trireme/cli/torch/simulated_servers.h"

#include <cmath>
#include <string>
#include <vector>

#include "trireme/net/sim/sim_channels.h"
#include "trireme/ps/server/server.h"

namespace trireme::inline v0::cli {
namespace {

class ServedNetwork {
 public:
  ServedNetwork(const ps::Settings& settings, const plan::LinkCost& link, std::uint64_t seed)
      : workers_(settings.workers),
        servers_(settings.model.servers()),
        network_(workers_ + servers_, {.seed = seed, .jitter = Duration(0), .one_link = true}),
        channels_(network_,
                  {.alpha = Duration(static_cast<Duration::rep>(std::llround(link.alpha * 1e9))),
                   .bytes_per_second = 1 / link.beta,
                   .jitter = Duration(0),
                   .one_link = true}) {}

  void run(const ps::Settings& settings, const SimulatedServersObserver& observer,
           const std::function<void(int, ps::ParameterClient&, Waiter&)>& work) {
    network_.run([&](int rank) {
      // After an error in one thread, the others find that no thread can run.
      rank < workers_ ? run_worker(rank, settings, work)
                      : serve(rank - workers_, network_.waiter(rank), observer);
    });
  }

 private:
  void run_worker(int worker, const ps::Settings& settings,
                  const std::function<void(int, ps::ParameterClient&, Waiter&)>& work) {
    const auto waiter = network_.waiter(worker);
    waiter->sleep(std::chrono::milliseconds(1));  // the servers listen now
    {
      const auto dial = [&](int server) {
        return channels_.dial(worker, "sim:" + std::to_string(workers_ + server));
      };
      ps::ParameterClient client(waiter, settings, {.worker = worker, .dial = dial});
      begin_with_zeros(client, worker);
      work(worker, client, *waiter);
    }
    ++ended_;
    for (int server = 0; server < servers_; ++server) network_.waiter(workers_ + server)->wake();
  }
  void serve(int server, const std::shared_ptr<Waiter>& waiter,
             const SimulatedServersObserver& observer) {
    const auto listening = channels_.listen(workers_ + server);
    const auto seen = observer.accepts ? observer.accepts(server, *listening, *waiter) : nullptr;
    ps::ParameterServer(waiter, seen ? *seen : *listening,
                        {.number = server,
                         .on_applied =
                             [&](const ps::Applied& one) {
                               if (observer.updated) observer.updated(*waiter, one);
                             }})
        .run([this] { return ended_ == workers_; });
  }

  const int workers_, servers_;
  net::SimNetwork network_;
  net::SimChannels channels_;
  int ended_ = 0;
};

}  // namespace

ps::Settings settings_of(int workers, int servers, std::size_t bytes, const ServerOptions& server) {
  return {.model = ps::ServedModel(
              {{.name = "weights", .shape = {static_cast<std::int64_t>(bytes / sizeof(float))}}},
              servers),
          .optimizer = Sgd{.learning_rate = 1},
          .workers = workers,
          .server = server};
}

void simulate_servers(const ps::Settings& settings, const plan::LinkCost& link, std::uint64_t seed,
                      const SimulatedServersObserver& observer,
                      const std::function<void(int, ps::ParameterClient&, Waiter&)>& work) {
  settings.check();
  ServedNetwork(settings, link, seed).run(settings, observer, work);
}

void begin_with_zeros(ps::ParameterClient& client, int worker) {
  for (int server = 0; worker == 0 && server < client.servers(); ++server)
    client.write(server, {ps::SavedText{}.to_text(),
                          std::vector<std::byte>(client.settings().model.bytes(server))});
  client.pull();
  for (int server = 0; server < client.servers(); ++server) client.gradient(server);
}

bool exchange(ps::ParameterClient& client, int worker) {
  const ps::Settings& settings = client.settings();
  if (settings.server.bound() != 0) {
    client.push(1.0 / settings.workers, 1);
    return true;
  }
  const std::vector<kernel::LeafRange> own = {{static_cast<std::uint32_t>(worker), 1}};
  const auto total = static_cast<std::uint32_t>(settings.workers);
  const double scale = 1.0 / (settings.workers - settings.server.backup);
  if (settings.server.backup > 0) return client.update(own, total, 1, scale);
  client.sum(own, total);
  client.commit(1, scale);
  return true;
}

}  // namespace trireme::inline v0::cli
