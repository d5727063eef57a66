// StrategyContext: the rank context of a strategy, made from a Job in programs, and from a rank of
// the simulated network in tests.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/job/job_input.h"
#include "trireme/kernel/assignment.h"
#include "trireme/observe/trace.h"
#include "trireme/sync/levels/plain_sync.h"
#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0 {
class Job;
namespace net {
class Channel;
}
namespace parallel {

struct StrategyContext {
  comm::Communicator* world = nullptr;  // outlives the strategy, or is own_world
  std::shared_ptr<comm::Communicator> own_world = nullptr;
  std::string host = {};
  std::function<int()> stop_signal = [] { return 0; };
  /// All ranks have agreed in a step's vote that the job is to stop, by this signal: 130 or 143.
  std::function<void(int)> note_stop = [](int) {};
  /// The DataParallels of one loop share it.
  std::shared_ptr<JobInput> input = std::make_shared<JobInput>();
  std::function<void(long step)> set_step = [](long) {};
  /// Tells the input which micro-batches this rank of a Strategy computes.
  std::function<void(const kernel::Assignment&)> assign = [](const kernel::Assignment&) {};
  /// JobOptions::reproducible: refuse ranks that would compute other bits than rank 0. `processor`
  /// describes what this rank's bits depend on (tensor/processor.h).
  bool reproducible = true;
  std::string processor = {};
  int local_size = 0;  // ranks on each host; 0: unknown, or hosts differ
  /// Parameter servers: their number, how to connect to one, and this worker's number.
  struct Servers {
    int count = 0;
    /// "server 1", "the evaluator": this process is no worker, and must not train with servers.
    std::string other_role = {};
    std::function<std::shared_ptr<net::Channel>(int shard)> dial = {};
    std::function<std::uint64_t(int shard)> term = [](int) { return 0; };
    Duration patience = std::chrono::seconds(30);  // until a lost server, or its successor, serves
    /// Says that no other worker waits for this one, and how many a step needs; 0: that all wait.
    std::function<void(int needed)> train_alone = [](int) {};
    int worker = 0, workers = 1;
    /// Job::joined_later(): this worker meets no other.
    bool on_its_own = false;
    /// As ps::ClientOptions'; `elastic`: there may be later epochs.
    std::int64_t epoch = 0;
    bool elastic = false;
    std::function<std::exception_ptr(bool commits)> broken = [](bool) { return nullptr; };
  };
  Servers servers = {};
  ReduceTerms reduce = tree_reduce;
  OnShardEvent on_shard_event = {};                 // under zero2, zero3 and hybrid
  std::shared_ptr<observe::Trace> trace = nullptr;  // null = off

  /// This process's number in the job, also if it has its own world.
  int rank() const noexcept { return own_world ? servers.worker : world->rank(); }
};
StrategyContext context_of(Job& job);
/// The same, with an on_shard_event that only one thread at a time calls.
inline StrategyContext with_events_one_at_a_time(StrategyContext context) {
  if (!context.on_shard_event) return context;
  context.on_shard_event = [to = std::move(context.on_shard_event),
                            mutex = std::make_shared<std::mutex>()](const ShardEvent& event) {
    const std::lock_guard lock(*mutex);
    to(event);
  };
  return context;
}

}  // namespace parallel
}  // namespace trireme::inline v0
