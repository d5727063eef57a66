#include "trireme/cli/torch/show/record_server.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/cli/torch/simulated_servers.h"
#include "trireme/net/channel.h"
#include "trireme/net/sim/scheduler.h"
#include "trireme/ps/messages.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::cli {
namespace {

using Request = show::ServerRun::Request;

// A picture has no room for more.
constexpr int kMostWorkers = 10, kMostServers = 8, kMostSteps = 40;
constexpr int kStepsOfSlowest = 20;  // in the whole run

Duration as_duration(double seconds) {
  return Duration(static_cast<Duration::rep>(std::llround(seconds * 1e9)));
}

double slowness(const ServerRunOptions& options, int worker) {
  const auto found = options.slow.find(worker);
  return found == options.slow.end() ? 1 : found->second;
}

Duration length_of(const ServerRunOptions& options) {
  double slowest = 1;
  for (const auto& [worker, times] : options.slow) slowest = std::max(slowest, times);
  return as_duration(to_seconds(options.compute) *
                     std::max<double>(options.steps, kStepsOfSlowest * slowest));
}

// Called by threads that run one at a time.
class Recorder {
 public:
  Recorder(const ServerRunOptions& options, const ServerOptions& server)
      : options_(options),
        settings_(settings_of(options.workers, options.servers, options.bytes, server)),
        doing_(static_cast<std::size_t>(options.workers)) {}

  show::ServerRun run();

  /// A server's progress context calls these.
  void arrive(const ps::Request& request, int server, const Waiter& waiter) {
    const auto kind = request.ask == ps::Ask::Push     ? Request::Kind::Push
                      : request.ask == ps::Ask::Terms  ? Request::Kind::Terms
                      : request.ask == ps::Ask::Commit ? Request::Kind::Commit
                                                       : std::optional<Request::Kind>();
    if (!kind) return;
    const Doing& doing = doing_[static_cast<std::size_t>(request.worker)];
    run_.requests.push_back(
        {*kind, request.worker, doing.step, server, doing.sent, now(waiter), /*answered=*/-1});
  }
  void answer(const ps::Request& request, int server, const Waiter& waiter) {
    for (auto one = run_.requests.rbegin(); one != run_.requests.rend(); ++one) {
      if (one->server != server || one->worker != request.worker) continue;
      if (one->answered < 0) one->answered = now(waiter);
      return;
    }
  }

 private:
  struct Doing {
    int step = 0;  // 0: before the first
    double sent = 0;
  };

  double now(const Waiter& waiter) const { return to_seconds(waiter.now() - origin_); }

  void work(int worker, ps::ParameterClient& client, Waiter& waiter) {
    net::Choices random(options_.seed * 1000 + static_cast<std::uint64_t>(worker));
    // The first step of any worker is at time 0.
    if (!std::exchange(started_, true)) origin_ = waiter.now();
    const double end = to_seconds(length_of(options_));
    for (int step = 1; now(waiter) < end; ++step) {
      const double begin = now(waiter);
      waiter.sleep(cost(worker, random));
      Doing& doing = doing_[static_cast<std::size_t>(worker)];
      doing = {step, now(waiter)};
      const bool counts = exchange(client, worker);
      run_.steps.push_back({worker, step, begin, doing.sent, now(waiter), !counts});
    }
  }

  Duration cost(int worker, net::Choices& random) const {
    constexpr std::uint64_t kParts = 2000;
    const double part = static_cast<double>(random.draw(kParts + 1)) / (kParts / 2.0) - 1;
    return as_duration(to_seconds(options_.compute) * slowness(options_, worker) *
                       (1 + options_.vary * part));
  }

  const ServerRunOptions& options_;
  const ps::Settings settings_;
  show::ServerRun run_;
  std::vector<Doing> doing_;  // by worker
  TimePoint origin_{};
  bool started_ = false;
};

// A server's end of a channel. Tells the recorder when a request has arrived and when its reply
// leaves; all bytes pass unchanged.
class RecordedChannel final : public net::Channel {
 public:
  RecordedChannel(std::shared_ptr<net::Channel> inner, Recorder& recorder, int server,
                  const Waiter& waiter)
      : inner_(std::move(inner)), recorder_(recorder), server_(server), waiter_(waiter) {}

  const net::Identity& peer() const noexcept override { return inner_->peer(); }
  Work send(std::span<const std::byte> head, std::span<const std::byte> payload) override {
    recorder_.answer(*request_, server_, waiter_);
    return inner_->send(head, payload);
  }
  Work receive(net::ChannelFrame& frame) override {
    return inner_->receive(frame).then(
        [&frame, &recorder = recorder_, server = server_, &waiter = waiter_, request = request_] {
          *request = ps::request_from(frame.head());
          recorder.arrive(*request, server, waiter);
        });
  }
  std::optional<net::SharedArea> share(std::size_t bytes) override { return inner_->share(bytes); }
  bool share(net::SharedArea& area) override { return inner_->share(area); }
  std::span<std::byte> area_of_peer(std::uint32_t id) override { return inner_->area_of_peer(id); }
  void close() override { inner_->close(); }

 private:
  const std::shared_ptr<net::Channel> inner_;
  Recorder& recorder_;
  const int server_;
  const Waiter& waiter_;
  // Not answered yet; shared because a frame may arrive while this end is being destroyed.
  const std::shared_ptr<ps::Request> request_ = std::make_shared<ps::Request>();
};

class RecordedAcceptor final : public net::Acceptor {
 public:
  RecordedAcceptor(net::Acceptor& inner, Recorder& recorder, int server, const Waiter& waiter)
      : inner_(inner), recorder_(recorder), server_(server), waiter_(waiter) {}
  const std::string& address() const noexcept override { return inner_.address(); }
  Work accept(std::shared_ptr<net::Channel>& to) override {
    return inner_.accept(to).then(
        [&to, &recorder = recorder_, server = server_, &waiter = waiter_] {
          to = std::make_shared<RecordedChannel>(std::move(to), recorder, server, waiter);
        });
  }

 private:
  net::Acceptor& inner_;
  Recorder& recorder_;
  const int server_;
  const Waiter& waiter_;
};

show::ServerRun Recorder::run() {
  const SimulatedServersObserver observer{
      .accepts =
          [this](int server, net::Acceptor& acceptor, Waiter& waiter) {
            return std::make_unique<RecordedAcceptor>(acceptor, *this, server, waiter);
          },
      .updated =
          [this](Waiter& waiter, const ps::Applied& one) {
            run_.updates.push_back(
                {one.shard, one.worker, now(waiter), one.version, one.staleness});
          }};
  simulate_servers(settings_, options_.link, options_.seed, observer,
                   [this](int worker, ps::ParameterClient& client, Waiter& waiter) {
                     work(worker, client, waiter);
                   });
  return std::move(run_);
}

std::string rule_of(const ServerOptions& server) {
  if (server.bound() < 0) return "asynchronous";
  if (server.bound() > 0) return "staleness up to " + std::to_string(server.bound());
  return server.backup > 0 ? "synchronous with " + counted(server.backup, "backup worker")
                           : "synchronous";
}

void check_run(const ServerRunOptions& options) {
  show::check_range("workers", options.workers, 1, kMostWorkers);
  show::check_range("servers", options.servers, 1, kMostServers);
  show::check_range("steps", options.steps, 1, kMostSteps);
  for (const auto& [worker, times] : options.slow)
    show::require(worker >= 0 && worker < options.workers && times >= 0.1 && times <= 100,
                  "worker " + std::to_string(worker) + " of " + std::to_string(options.workers) +
                      " that takes " + number_text(times) + " times as long",
                  "Name a worker from 0 on, and a factor from 0.1 to 100: 3:5.");
  show::require(options.bytes >= 4 && options.bytes <= 16u << 20,
                "a model of " + size_text(options.bytes), "Use 4 bytes to 16 MiB.");
  show::require(options.compute >= std::chrono::microseconds(1) &&
                    options.compute <= std::chrono::seconds(100),
                "steps of " + duration_text(to_seconds(options.compute)), "Use 1 us to 100 s.");
  show::require(options.vary >= 0 && options.vary < 1,
                "steps that vary by " + number_text(options.vary), "Use 0 to less than 1.");
  show::require(options.link.beta > 0, "the link has no rate", "Write --link 50us,200MB/s.");
}

std::string about_run(const ServerRunOptions& options) {
  std::string text = "recorded on a simulated network: a worker computes a step in " +
                     duration_text(to_seconds(options.compute));
  if (options.vary > 0) text += ", up to " + show::fixed(100 * options.vary, 0) + " % more or less";
  for (const auto& [worker, times] : options.slow)
    text += ", worker " + std::to_string(worker) + " in " + number_text(times) + " times as long";
  return text + "; a model of " + size_text(options.bytes) + ", links of " +
         duration_text(options.link.alpha) + " and " + bytes_text(1 / options.link.beta) +
         " a second";
}

}  // namespace

show::ServerRun record_server(const ServerRunOptions& options) {
  check_run(options);
  show::ServerRun run = Recorder(options, options.server).run();
  std::sort(run.steps.begin(), run.steps.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.worker) < std::pair(b.begin, b.worker);
  });
  const std::string rule = rule_of(options.server);
  run.name =
      counted(options.workers, "worker") + ", " + counted(options.servers, "server") + ", " + rule;
  run.about = about_run(options);
  run.workers = options.workers;
  run.servers = options.servers;
  run.end = to_seconds(length_of(options));
  run.shown = to_seconds(options.compute) * options.steps;
  run.rates.emplace_back(rule, show::rate_of(run));
  for (const std::int64_t staleness : {0, -1}) {
    const ServerOptions other{.staleness = staleness};
    if (rule_of(other) != rule)
      run.rates.emplace_back(rule_of(other), show::rate_of(Recorder(options, other).run()));
  }
  return run;
}

}  // namespace trireme::inline v0::cli
