// ElasticCluster: an elastic job on the simulated network, for tests. Threads are the processes; the
// launcher's decisions are those of launch/elastic_group.h; a seed decides who is killed or hangs, and
// when news arrive.
//
// A killed process loses its transport, as if its sockets were closed; the launcher hears of it a
// little later, and may start it again. While the coordinator is away nobody is heard and nobody is
// told; then it goes on from what it had decided. Parameter servers, which nobody kills here, are threads
// after those of the ranks.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/job/job.h"
#include "trireme/job/job_changes.h"
#include "trireme/launch/elastic_group.h"
#include "trireme/net/sim/sim_channels.h"
#include "trireme/net/sim/sim_network.h"
#include "trireme/ps/server/server.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::train_test {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct ElasticRun {
  launch::ElasticOptions options;
  int ranks = 1;
  int servers = 0;
  net::SimOptions network = {};  // cuts are between processes, and counted from the run's start
  int kills = 0, hangs = 0;
  int coordinator_deaths = 0;          // it is away for up to a quarter of `within`
  Duration within = milliseconds(20);  // after the start, in which processes are killed
  std::vector<std::pair<Duration, int>> resizes = {};  // when, and to how many ranks
};

class ElasticCluster {
 public:
  explicit ElasticCluster(ElasticRun run)
      : run_(std::move(run)),
        group_(run_.options, run_.ranks),
        network_(run_.options.max + run_.options.spares + run_.servers, run_.network),
        channels_(network_, {.shared_memory = run_.network.shared_memory}),
        processes_(static_cast<std::size_t>(run_.options.max + run_.options.spares)) {}

  /// Calls `body` in each process with its Job, which is a rank; `at_step` is to be called in every
  /// step. Returns when the job has ended.
  void run(const std::function<void(Job& job, const std::function<void()>& at_step)>& body) {
    for (const int process : group_.first_processes()) processes_[process].due = true;
    plan_faults();
    network_.run([&](int thread) {
      const int server = thread - static_cast<int>(processes_.size());
      server < 0 ? live(thread, body) : serve(thread, server);
    });
  }
  /// For a Strategy of this epoch.
  parallel::StrategyContext context_of(Job& job) {
    parallel::StrategyContext env = parallel::context_of(job);
    if (run_.servers == 0) return env;
    const auto process =
        static_cast<int>(std::find_if(processes_.begin(), processes_.end(),
                                      [&](const Process& one) { return one.job == &job; }) -
                         processes_.begin());
    env.servers.count = run_.servers;
    env.servers.dial = [this, process](int server) {
      const auto thread = static_cast<int>(processes_.size()) + server;
      return channels_.dial(process, "sim:" + std::to_string(thread));
    };
    env.servers.term = [](int) { return 0; };
    env.servers.broken = [this, process,
                          own = env.servers.broken](bool commits) -> std::exception_ptr {
      if (!processes_[process].killed) return own(commits);
      return commits ? nullptr : std::make_exception_ptr(PeerLost("killed"));
    };
    return env;
  }
  /// The process is killed after so long. It may compute or communicate then.
  void lose(int process, Duration after) {
    later(process, after, [=, this] { kill(process); });
  }
  int deaths() const noexcept { return deaths_; }
  int epochs() const noexcept { return static_cast<int>(group_.epoch().number) + 1; }
  int finished() const noexcept { return finished_; }
  /// How processes ended, and why the job did.
  const std::string& trouble() const noexcept { return trouble_; }

 private:
  struct Process {
    Job* job = nullptr;
    std::weak_ptr<net::Transport> transport;
    bool due = false;     // it shall start
    bool killed = false;  // and has not noticed yet, perhaps
    bool hangs = false;
  };

  Duration random(Duration most) {
    return Duration(static_cast<Duration::rep>(
        scheduler().random().draw(static_cast<std::uint64_t>(most.count()) + 1)));
  }
  net::Scheduler& scheduler() { return network_.scheduler(); }
  void later(int thread, Duration delay, std::function<void()> task) {
    scheduler().at(thread, scheduler().now() + delay, std::move(task), /*delivery=*/false);
  }

  void plan_faults() {
    const int places = static_cast<int>(processes_.size());
    for (int i = 0; i < run_.kills + run_.hangs; ++i) {
      const int victim =
          static_cast<int>(scheduler().random().draw(static_cast<std::uint64_t>(places)));
      const bool hangs = i >= run_.kills;
      later(victim, random(run_.within),
            [=, this] { hangs ? void(processes_[victim].hangs = true) : kill(victim); });
    }
    for (int i = 0; i < run_.coordinator_deaths; ++i)
      later(0, random(run_.within),
            [this] { back_at_ = scheduler().now() + random(run_.within / 4); });
    for (const auto& [when, ranks] : run_.resizes)
      later(0, when, [this, ranks = ranks] {
        if (finished_ == 0) carry_out(group_.resize(ranks, scheduler().now()));
      });
  }

  // How long the coordinator is still away, and some time for its processes to find it again.
  Duration away() {
    const Duration rest = back_at_ - scheduler().now();
    return rest > Duration::zero() ? rest + random(microseconds(200)) : Duration::zero();
  }

  void serve(int thread, int server) {
    const auto acceptor = channels_.listen(thread);
    ps::ParameterServer(network_.waiter(thread), *acceptor, {.number = server}).run([&] {
      return over_;
    });
  }

  void kill(int process) {
    Process& one = processes_[process];
    if (one.job == nullptr || over_) return;
    one.killed = true;
    one.job->changes().end();
    if (const auto transport = one.transport.lock())
      transport->abort(std::make_exception_ptr(PeerLost("killed")));
  }

  void live(int process, const std::function<void(Job&, const std::function<void()>&)>& body) {
    Process& one = processes_[process];
    const std::shared_ptr<Waiter> waiter = network_.waiter(process);
    for (;;) {
      waiter->wait_until([&] { return one.due || over_; }, TimePoint::max());
      if (over_) return;
      one.due = one.killed = one.hangs = false;
      std::string how;
      try {
        Job job(SimulatedProcess{process, waiter,
                                 [&](const auto& epoch) { return connect(process, epoch); }},
                {});
        one.job = &job;
        while (away() > Duration::zero()) waiter->sleep(away());
        if (!group_.is_member(process) && finished_ == 0) carry_out(group_.joined(process));
        job.changes().adopt(group_.epoch());
        job.changes().enter_next();
        body(job, [&] { pass(process, *waiter); });
      } catch (const std::exception& error) {
        how = error.what();
      }
      one.job = nullptr;
      if (how.empty()) return finish();
      if (over_) return;
      if (finished_ > 0) {  // the training has ended, and nobody waits for this process
        if (group_.is_member(process)) finish();
        continue;
      }
      ++deaths_;
      trouble_ += how + "\n";
      later(process, random(milliseconds(2)), [=, this] { bury(process, how); });
    }
  }

  // The launcher kills a process that hangs, and which then ends at once.
  void pass(int process, Waiter& waiter) {
    Process& one = processes_[process];
    waiter.sleep(milliseconds(1));  // it computes
    // Ranks that share memory wait without their transport.
    if (one.killed) throw PeerLost("killed");
    if (!one.hangs) return;
    one.hangs = false;
    later(process, run_.options.silence, [=, this] { kill(process); });
    waiter.wait_until([&] { return one.killed || over_; }, TimePoint::max());
    throw PeerLost("killed while it hung");
  }

  std::shared_ptr<net::Transport> connect(int process, const rendezvous::Epoch& epoch) {
    auto& network = networks_[epoch.number];
    if (!network)
      network = std::make_unique<net::SimNetwork>(network_, epoch.members, faults_of(epoch));
    auto transport = network->transport(*epoch.rank_of(process));
    processes_[process].transport = transport;
    return transport;
  }

  // The cuts of the whole run, between processes, as cuts between the epoch's ranks from now on.
  net::SimFaults faults_of(const rendezvous::Epoch& epoch) {
    net::SimFaults faults = run_.network.faults;
    const Duration now = scheduler().now() - start_;
    std::erase_if(faults.cuts, [&](net::SimCut& cut) {
      const auto from = epoch.rank_of(cut.from), to = epoch.rank_of(cut.to);
      if (!from || !to || cut.end <= now) return true;
      cut = {*from, *to, std::max(cut.begin - now, Duration::zero()), cut.end - now};
      return false;
    });
    return faults;
  }

  void bury(int process, const std::string& how) {
    if (over_) return;
    if (const Duration wait = away(); wait > Duration::zero())
      return later(process, wait, [=, this] { bury(process, how); });
    if (finished_ > 0) return group_.is_member(process) ? finish() : void();
    const auto decision = group_.lost(process, how, /*again=*/true, scheduler().now());
    if (decision.give_up) {
      trouble_ += decision.line;
      end();
    }
    carry_out(decision);
  }

  void carry_out(const launch::ElasticGroup::Decision& decision) {
    if (decision.epoch)
      for (std::size_t i = 0; i < processes_.size(); ++i)
        tell(static_cast<int>(i), *decision.epoch, random(microseconds(200)));
    for (const auto& [process, delay] : decision.starts)
      later(process, delay + milliseconds(1) + random(milliseconds(5)), [this, p = process] {
        processes_[p].due = true;
        scheduler().wake(p);
      });
  }

  void tell(int process, const rendezvous::Epoch& epoch, Duration delay) {
    later(process, delay, [=, this] {
      if (const Duration wait = away(); wait > Duration::zero()) return tell(process, epoch, wait);
      if (processes_[process].job != nullptr) processes_[process].job->changes().adopt(epoch);
    });
  }

  void finish() {
    if (++finished_ == static_cast<int>(group_.epoch().members.size())) end();
  }

  void end() {
    over_ = true;
    for (Process& one : processes_)
      if (one.job != nullptr) one.job->changes().end();
    for (int thread = 0; thread < static_cast<int>(processes_.size()) + run_.servers; ++thread)
      scheduler().wake(thread);
  }

  const ElasticRun run_;
  launch::ElasticGroup group_;
  net::SimNetwork network_;
  net::SimChannels channels_;
  std::map<std::uint32_t, std::unique_ptr<net::SimNetwork>> networks_;  // by epoch
  std::vector<Process> processes_;
  const TimePoint start_ = scheduler().now();
  TimePoint back_at_{};  // when the coordinator is there again
  bool over_ = false;
  int finished_ = 0, deaths_ = 0;
  std::string trouble_;
};

}  // namespace trireme::train_test
