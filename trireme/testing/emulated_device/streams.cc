#include "trireme/testing/emulated_device/streams.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace trireme::inline v0::testing {
namespace {

/// Makes OpenMP run the parallel regions of the calling thread, and of no other, with one thread.
/// at::set_num_threads() would change the number for all threads that start later.
void use_one_thread_here() {
  at::get_num_threads();  // so that LibTorch does not set this thread's number later
  using SetNumThreads = void (*)(int);
  const auto set = reinterpret_cast<SetNumThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set) set(1);
}

}  // namespace

Streams::Streams(std::uint64_t seed, FailureHandler on_failure)
    : seed_(seed), random_(seed), on_failure_(std::move(on_failure)) {
  thread_ = std::thread([this] { run(); });
}

StreamIndex Streams::add_stream(const Lock&) {
  queues_.emplace_back();
  const auto stream = static_cast<StreamIndex>(queues_.size() - 1);
  queues_.back().weight = weight_of(stream);
  return stream;
}

StreamPoint Streams::push(const Lock&, StreamIndex stream, Operation operation) {
  Queue& queue = queues_[stream];
  queue.operations.push_back(std::move(operation));
  ++pending_;
  return {stream, ++queue.pushed};
}

void Streams::wait(Lock& lock, StreamPoint point) {
  if (!reached(point)) wait_for(lock, {.points = {point}, .only_needed = (random_() & 1) != 0});
}

void Streams::wait_for_room(Lock& lock, std::size_t count) {
  wait_for(lock, {.max_pending = count});
}

void Streams::step(Lock& lock) { wait_for(lock, {.steps = 1 + random_() % 3}); }

void Streams::wait_for(Lock& lock, Demand demand) {
  TORCH_CHECK(std::this_thread::get_id() != thread_.get_id(),
              "an operation of the emulated device waits for the emulated device");
  const auto place = demands_.insert(demands_.end(), &demand);
  work_.notify_one();
  progress_.wait(lock, [&] {
    const bool met = stopped_ || satisfied(demand);
    if (!met) work_.notify_one();  // another host thread may have pushed since it was met
    return met;
  });
  demands_.erase(place);
}

bool Streams::satisfied(const Demand& demand) const {
  return pending_ == 0 || (demand.steps == 0 && pending_ <= demand.max_pending &&
                           std::all_of(demand.points.begin(), demand.points.end(),
                                       [this](StreamPoint point) { return reached(point); }));
}

bool Streams::may_run(const Queue& queue) const {
  if (queue.operations.empty()) return false;
  const auto& after = queue.operations.front().after;
  return std::all_of(after.begin(), after.end(), [this](StreamPoint p) { return reached(p); });
}

/// Adds the streams whose first operation has to run before `point` can be reached.
void Streams::add_needed(StreamPoint point, std::vector<StreamIndex>& needed) const {
  if (reached(point)) return;
  const Queue& queue = queues_[point.stream];
  if (!may_run(queue)) {
    for (const StreamPoint earlier : queue.operations.front().after) add_needed(earlier, needed);
  } else if (std::find(needed.begin(), needed.end(), point.stream) == needed.end()) {
    needed.push_back(point.stream);
  }
}

std::vector<StreamIndex> Streams::candidates() const {
  std::vector<StreamIndex> found;
  for (const Demand* demand : demands_) {
    if (satisfied(*demand)) continue;
    if (!demand->only_needed) {
      found.clear();
      break;
    }
    for (const StreamPoint point : demand->points) add_needed(point, found);
  }
  if (found.empty())
    for (StreamIndex i = 0; i < queues_.size(); ++i)
      if (may_run(queues_[i])) found.push_back(i);
  return found;
}

StreamIndex Streams::choose(const std::vector<StreamIndex>& streams) {
  std::uint64_t sum = 0;
  for (const StreamIndex stream : streams) sum += queues_[stream].weight;
  std::uint64_t left = random_() % sum;
  for (const StreamIndex stream : streams) {
    if (left < queues_[stream].weight) return stream;
    left -= queues_[stream].weight;
  }
  return streams.back();
}

/// 1, 4, 16 or 64: some streams run far ahead of others.
std::uint64_t Streams::weight_of(StreamIndex stream) const {
  return std::uint64_t{1} << 2 * (std::mt19937_64(seed_ * 1'000'003 + stream)() % 4);
}

void Streams::run_one(Lock& lock, StreamIndex stream) {
  {
    Operation operation = std::move(queues_[stream].operations.front());
    queues_[stream].operations.pop_front();
    lock.unlock();
    std::string failure;
    try {
      if (operation.run) operation.run();
    } catch (const c10::Error& error) {
      failure = error.what_without_backtrace();
    } catch (const std::exception& error) {
      failure = error.what();
    } catch (...) {
      failure = "an exception of unknown type";
    }
    const std::string name = std::move(operation.name);
    operation = {};  // its destructor may take the lock
    lock.lock();
    if (!failure.empty()) on_failure_(stream, name, failure);
  }
  ++queues_[stream].done;
  --pending_;
  for (Demand* demand : demands_)
    if (demand->steps > 0) --demand->steps;
}

void Streams::run() {
  use_one_thread_here();
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  Lock lock(mutex_);
  const auto wanted = [this] {
    return std::any_of(demands_.begin(), demands_.end(),
                       [this](const Demand* demand) { return !satisfied(*demand); });
  };
  for (;;) {
    work_.wait(lock, [&] { return stopped_ || wanted(); });
    if (stopped_) return;
    run_one(lock, choose(candidates()));
    if (std::any_of(demands_.begin(), demands_.end(),
                    [this](const Demand* demand) { return satisfied(*demand); }))
      progress_.notify_all();
  }
}

void Streams::reseed(const Lock&, std::uint64_t seed) {
  seed_ = seed;
  random_.seed(seed);
  for (StreamIndex i = 0; i < queues_.size(); ++i) queues_[i].weight = weight_of(i);
}

void Streams::stop() {
  {
    const Lock lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    work_.notify_all();
    progress_.notify_all();
  }
  thread_.join();
}

}  // namespace trireme::inline v0::testing
