// The streams of all emulated devices, and the thread that carries out their operations.
//
// An operation waits in its stream until somebody needs it: the thread runs only while a host
// thread waits for a point of a stream. Then a generator with a seed decides which stream goes next
// among those whose first operation may run. So two runs of one program with the same seed run the
// operations in the same order (as far as its host threads do), and other seeds try other orders.
//
// The order of a stream is kept, and an operation waits for the points in `after`. These always lie
// in the past when it is pushed, so there is no deadlock.
//
// One mutex guards this object and the rest of the runtime; the caller holds it where a function
// takes `lock`. Operations run without it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "trireme/testing/emulated_device/vector_clock.h"

namespace trireme::inline v0::testing {

struct Operation {
  std::string name;
  std::vector<StreamPoint> after;
  std::function<void()> run;  // may be empty
};

class Streams {
 public:
  using Lock = std::unique_lock<std::mutex>;
  /// Called with the lock when the operation `name` has thrown.
  using FailureHandler =
      std::function<void(StreamIndex, const std::string& name, const std::string& what)>;

  Streams(std::uint64_t seed, FailureHandler on_failure);

  std::mutex& mutex() { return mutex_; }
  StreamIndex add_stream(const Lock& lock);
  /// Returns the point that is reached when the operation is done.
  StreamPoint push(const Lock& lock, StreamIndex stream, Operation operation);
  /// The point after all operations that were pushed so far.
  StreamPoint end_of(StreamIndex stream) const { return {stream, queues_[stream].pushed}; }
  bool reached(StreamPoint point) const { return queues_[point.stream].done >= point.count; }
  std::size_t num_pending() const { return pending_; }
  std::size_t num_streams() const { return queues_.size(); }

  void wait(Lock& lock, StreamPoint point);
  /// Waits until at most `count` operations are left.
  void wait_for_room(Lock& lock, std::size_t count);
  /// Runs a few operations, so that a host that polls makes progress.
  void step(Lock& lock);

  void reseed(const Lock& lock, std::uint64_t seed);
  /// Ends the thread. Other operations are never run, and waits for them end.
  void stop();

 private:
  struct Queue {
    std::deque<Operation> operations;
    std::uint64_t pushed = 0, done = 0;
    std::uint64_t weight = 1;
  };
  struct Demand {
    std::vector<StreamPoint> points;
    std::size_t max_pending = SIZE_MAX;
    std::size_t steps = 0;  // operations still to run
    bool only_needed = false;
  };

  bool satisfied(const Demand& demand) const;
  bool may_run(const Queue& queue) const;
  void wait_for(Lock& lock, Demand demand);
  void add_needed(StreamPoint point, std::vector<StreamIndex>& needed) const;
  std::vector<StreamIndex> candidates() const;
  StreamIndex choose(const std::vector<StreamIndex>& streams);
  std::uint64_t weight_of(StreamIndex stream) const;
  void run_one(Lock& lock, StreamIndex stream);
  void run();

  std::mutex mutex_;
  std::condition_variable work_, progress_;
  std::deque<Queue> queues_;
  std::list<Demand*> demands_;
  std::size_t pending_ = 0;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  FailureHandler on_failure_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace trireme::inline v0::testing
