#include "trireme/net/sim/sim_network.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/joined.h"
#include "trireme/base/work_source.h"
#include "trireme/net/errors.h"

namespace trireme::inline v0::net {
namespace {

constexpr std::size_t kMostArrivals = 1024;

using Key = std::pair<int, std::uint64_t>;  // peer, tag

struct Message {
  int from = 0, to = 0;
  Tag tag;
  std::span<const std::byte> bytes;  // the sender's buffer, or `copy`
  std::vector<std::byte> copy;
  std::optional<WorkSource> source;  // of a send that waits for its receive
  bool cancelled = false;            // the sender's buffer may be freed
};

struct Posted {
  std::span<std::byte> bytes;
  WorkSource source;
};

std::vector<int> all_below(int size) {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

struct OwnRegion {
  std::span<std::byte> bytes;
  std::weak_ptr<void> owner;
};

}  // namespace

struct SimNetwork::State {
  struct Endpoint {
    bool joined = false, left = false;
    std::exception_ptr failure;
    std::map<Key, std::deque<Posted>> posted;
    std::map<Key, std::deque<std::shared_ptr<Message>>> arrived;
    std::set<Key> torn;  // a message is missing; no later one may take its place
    std::vector<std::shared_ptr<Message>> waiting;  // sent messages without a receive yet
    std::vector<bool> gone;                         // peers that this rank knows have left
    std::map<Key, TimePoint> last_arrival;
    TimePoint last_sent{};
    std::uint32_t num_regions = 0;
    std::map<std::uint32_t, OwnRegion> regions;
    // Peers' regions, kept until unmap(). In shm a rank holds their descriptors, mapped or not.
    std::map<Key, Region> given;
  };

  State(std::shared_ptr<Scheduler> its_scheduler, const SimOptions& its_options,
        std::vector<int> its_threads);
  int thread_of(int rank) const { return threads[static_cast<std::size_t>(rank)]; }
  Endpoint& end(int rank) { return ends[static_cast<std::size_t>(rank)]; }
  const std::vector<int> threads;  // of the scheduler, by rank
  std::shared_ptr<Scheduler> scheduler;
  SimOptions options;
  SimWays ways;
  std::vector<Endpoint> ends;

  TimePoint arrival(int from, int to, Tag tag, std::size_t bytes);
  std::shared_ptr<Message> next_arrived(int rank, const Key& key);
  void arrive(int to, const std::shared_ptr<Message>& message);
  void match(int to, const Posted& posted, const std::shared_ptr<Message>& message);
  void fail_everything(int rank, const std::exception_ptr& error);
  void peer_left(int rank, int peer);
  std::string describe(int rank);
};

namespace {

using State = SimNetwork::State;

class SimTransport final : public Transport, private HostMemory, private MoveTimes {
 public:
  SimTransport(std::shared_ptr<State> state, std::shared_ptr<Waiter> waiter, int rank)
      : state_(std::move(state)), waiter_(std::move(waiter)), rank_(rank) {
    TRIREME_CHECK(!end().joined);
    end().joined = true;
  }
  ~SimTransport() override { leave(); }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(state_->ends.size()); }
  std::shared_ptr<Waiter> waiter() const override { return waiter_; }
  std::string_view name() const noexcept override { return "sim"; }
  Work send(int peer, Tag tag, std::span<const std::byte> bytes) override;
  Work recv(int peer, Tag tag, std::span<std::byte> bytes) override;
  bool lost(int peer) const noexcept override { return end().gone[static_cast<std::size_t>(peer)]; }
  void abort(std::exception_ptr error) noexcept override {
    if (!end().failure) state_->fail_everything(rank_, error);
  }
  Capabilities capabilities() noexcept override {
    return {.memory = state_->options.shared_memory ? this : nullptr, .moves = this};
  }

 private:
  // HostMemory:
  Region allocate(std::size_t bytes, std::span<const int> peers) override;
  bool can_map(int) const noexcept override { return true; }
  std::span<std::byte> map(int peer, RegionId region) override;
  void unmap(int peer, RegionId region) noexcept override;
  bool read(int peer, std::uintptr_t address, std::span<std::byte> to) override {
    if (lost(peer)) return false;
    if (!to.empty()) std::memcpy(to.data(), reinterpret_cast<const void*>(address), to.size());
    return true;  // ranks are threads of one process
  }
  void notify(int peer) noexcept override { state_->scheduler->wake(state_->thread_of(peer)); }
  // MoveTimes:
  TimePoint last_moved(int peer) const noexcept override {
    return state_->ways.last_moved(rank_, peer);
  }

  State::Endpoint& end() const { return state_->end(rank_); }
  void leave();

  const std::shared_ptr<State> state_;
  const std::shared_ptr<Waiter> waiter_;
  const int rank_;
};

Work SimTransport::send(int peer, Tag tag, std::span<const std::byte> bytes) {
  check_peer(peer, size());
  if (end().failure) return Work::failed(end().failure);
  if (end().gone[static_cast<std::size_t>(peer)]) {
    return Work::failed(peer_lost(rank_, peer, "send"));
  }
  auto message = std::make_shared<Message>();
  message->from = rank_;
  message->to = peer;
  message->tag = tag;
  Work work;
  if (bytes.size() <= kEagerBytes || state_->scheduler->random().draw(2) == 0) {
    message->copy.assign(bytes.begin(), bytes.end());
    message->bytes = message->copy;
  } else {
    message->bytes = bytes;
    message->source.emplace(waiter_, nullptr, "send to " + std::to_string(peer));
    end().waiting.push_back(message);
    work = message->source->work();
  }
  const TimePoint when = state_->arrival(rank_, peer, tag, bytes.size());
  const auto arrive = [state = state_, peer, message] { state->arrive(peer, message); };
  if (when != TimePoint::max()) state_->scheduler->at(state_->thread_of(peer), when, arrive, true);
  return work;
}

Work SimTransport::recv(int peer, Tag tag, std::span<std::byte> bytes) {
  check_peer(peer, size());
  if (end().failure) return Work::failed(end().failure);
  Posted posted{bytes, WorkSource(waiter_, nullptr, "recv from " + std::to_string(peer))};
  if (const auto message = state_->next_arrived(rank_, {peer, tag.value})) {
    state_->match(rank_, posted, message);
    return posted.source.work();
  }
  if (end().gone[static_cast<std::size_t>(peer)]) {
    return Work::failed(peer_lost(rank_, peer, "recv"));
  }
  end().posted[{peer, tag.value}].push_back(posted);
  return posted.source.work();
}

Region SimTransport::allocate(std::size_t bytes, std::span<const int> peers) {
  Region region = private_region(bytes);
  region.id = {end().num_regions++};
  end().regions.emplace(region.id.value, OwnRegion{region.bytes, region.owner});
  for (int peer = 0; peer < size(); ++peer) {
    const bool chosen = peers.empty() || std::find(peers.begin(), peers.end(), peer) != peers.end();
    if (peer == rank_ || !chosen) continue;
    state_->end(peer).given[{rank_, region.id.value}] = region;
  }
  return region;
}

std::span<std::byte> SimTransport::map(int peer, RegionId region) {
  check_peer(peer, size());
  TRIREME_CHECK(region.value < state_->end(peer).num_regions);
  if (peer != rank_) {
    const auto found = end().given.find({peer, region.value});
    return found == end().given.end() ? std::span<std::byte>() : found->second.bytes;
  }
  const auto own = end().regions.find(region.value);
  const bool alive = own != end().regions.end() && !own->second.owner.expired();
  return alive ? own->second.bytes : std::span<std::byte>();
}

void SimTransport::unmap(int peer, RegionId region) noexcept {
  peer == rank_ ? end().regions.erase(region.value) : end().given.erase({peer, region.value});
}

void SimTransport::leave() {
  if (!end().failure) state_->fail_everything(rank_, closed(rank_));
  end().left = true;
  auto& scheduler = *state_->scheduler;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    const TimePoint end_sent = std::max(scheduler.now() + state_->options.alpha, end().last_sent);
    const TimePoint when = state_->ways.through(rank_, peer, end_sent);
    const auto left = [state = state_, peer, rank = rank_] { state->peer_left(peer, rank); };
    if (when != TimePoint::max()) scheduler.at(state_->thread_of(peer), when, left, true);
  }
}

}  // namespace

SimNetwork::State::State(std::shared_ptr<Scheduler> its_scheduler, const SimOptions& its_options,
                         std::vector<int> its_threads)
    : threads(std::move(its_threads)),
      scheduler(std::move(its_scheduler)),
      options(its_options),
      ways(*scheduler, {options.alpha, options.bytes_per_second, options.jitter, options.one_link},
           options.faults),
      ends(threads.size()) {
  for (Endpoint& end : ends) end.gone.assign(threads.size(), false);
}

TimePoint SimNetwork::State::arrival(int from, int to, Tag tag, std::size_t bytes) {
  Endpoint& end = this->end(from);
  if (end.last_arrival.size() > kMostArrivals) {  // times in the past restrict nothing
    std::erase_if(end.last_arrival,
                  [&](const auto& one) { return one.second <= scheduler->now(); });
  }
  const TimePoint arrives = ways.arrival(from, to, bytes);
  if (arrives == TimePoint::max()) return arrives;
  auto& last = end.last_arrival[{to, tag.value}];
  last = std::max(last, arrives);
  end.last_sent = std::max(end.last_sent, last);
  return last;
}

// Erases empty queues, because every group that comes and goes uses its own tags.
std::shared_ptr<Message> SimNetwork::State::next_arrived(int rank, const Key& key) {
  auto& arrived = end(rank).arrived;
  std::shared_ptr<Message> message;
  const auto queue = arrived.find(key);
  if (queue != arrived.end() && queue->second.front()->cancelled) {
    end(rank).torn.insert(key);
    queue->second.clear();
  } else if (queue != arrived.end()) {
    message = queue->second.front();
    queue->second.pop_front();
  }
  if (queue != arrived.end() && queue->second.empty()) arrived.erase(queue);
  return message;
}

void SimNetwork::State::arrive(int to, const std::shared_ptr<Message>& message) {
  Endpoint& end = this->end(to);
  const Key key{message->from, message->tag.value};
  if (message->cancelled) end.torn.insert(key);
  if (end.failure || end.torn.count(key) != 0) return;
  const auto posted = end.posted.find(key);
  if (posted == end.posted.end() || posted->second.empty()) {
    end.arrived[key].push_back(message);
    return;
  }
  const Posted first = std::move(posted->second.front());
  posted->second.pop_front();
  if (posted->second.empty()) end.posted.erase(posted);
  match(to, first, message);
}

void SimNetwork::State::match(int to, const Posted& posted,
                              const std::shared_ptr<Message>& message) {
  if (message->source) {
    const TimePoint when = ways.through(to, message->from, scheduler->now() + options.alpha);
    const auto taken = [this, message] {
      std::erase(end(message->from).waiting, message);
      message->source->complete();
    };
    if (when != TimePoint::max()) scheduler->at(thread_of(message->from), when, taken, true);
  }
  if (posted.bytes.size() != message->bytes.size()) {
    posted.source.fail(length_mismatch(to, message->from, message->tag, posted.bytes.size(),
                                       message->bytes.size()));
    return;
  }
  if (!posted.bytes.empty()) {
    std::memcpy(posted.bytes.data(), message->bytes.data(), posted.bytes.size());
  }
  posted.source.complete();
}

void SimNetwork::State::fail_everything(int rank, const std::exception_ptr& error) {
  Endpoint& end = this->end(rank);
  end.failure = error;
  const auto posted = std::exchange(end.posted, {});
  const auto waiting = std::exchange(end.waiting, {});
  end.arrived.clear();
  for (const auto& message : waiting) message->cancelled = true;
  for (const auto& message : waiting) message->source->fail(error);
  for (const auto& [key, queue] : posted) {
    for (const auto& one : queue) one.source.fail(error);
  }
}

void SimNetwork::State::peer_left(int rank, int peer) {
  Endpoint& end = this->end(rank);
  end.gone[static_cast<std::size_t>(peer)] = true;
  if (end.failure) return;
  std::vector<WorkSource> lost;
  for (auto& [key, queue] : end.posted) {
    if (key.first != peer) continue;
    for (const auto& one : queue) lost.push_back(one.source);
    queue.clear();
  }
  std::vector<WorkSource> unsent;
  for (const auto& message : end.waiting) {
    if (message->to != peer) continue;
    message->cancelled = true;
    unsent.push_back(*message->source);
  }
  std::erase_if(end.waiting, [](const auto& message) { return message->cancelled; });
  for (const auto& source : lost) source.fail(peer_lost(rank, peer, "recv"));
  for (const auto& source : unsent) source.fail(peer_lost(rank, peer, "send"));
}

std::string SimNetwork::State::describe(int rank) {
  const auto part = [](std::size_t bytes, const char* where, int peer, std::uint64_t tag) {
    return std::to_string(bytes) + " bytes " + where + " rank " + std::to_string(peer) + " (tag " +
           std::to_string(tag) + ")";
  };
  std::vector<std::string> parts;
  for (const auto& [key, queue] : end(rank).posted)
    for (const auto& one : queue)
      parts.push_back(part(one.bytes.size(), "from", key.first, key.second));
  for (const auto& message : end(rank).waiting)
    parts.push_back("a receiver of " +
                    part(message->bytes.size(), "at", message->to, message->tag.value));
  return joined(parts, {}, " and ");
}

SimOptions cluster(Duration alpha, double bytes_per_second) {
  return {.alpha = alpha,
          .bytes_per_second = bytes_per_second,
          .jitter = Duration::zero(),
          .shared_memory = false,
          .one_link = true,
          .charge_computing = true};
}

SimNetwork::SimNetwork(int size, SimOptions options)
    : scheduler_(std::make_shared<Scheduler>(
          size, Scheduler::Options{.seed = options.seed,
                                   .charge_computing = options.charge_computing,
                                   .early_deliveries = !options.one_link})),
      state_(std::make_shared<State>(scheduler_, options, all_below(size))) {
  schedule_breaks();
  scheduler_->set_describe([state = std::weak_ptr(state_)](int rank) {
    const auto alive = state.lock();
    return alive ? alive->describe(rank) : std::string();
  });
}

SimNetwork::SimNetwork(const SimNetwork& base, std::vector<int> threads, SimFaults faults)
    : scheduler_(base.scheduler_) {
  SimOptions options = base.state_->options;
  options.faults = std::move(faults);
  state_ = std::make_shared<State>(scheduler_, options, std::move(threads));
  schedule_breaks();
}

void SimNetwork::schedule_breaks() {
  for (const SimWays::Break& one : state_->ways.breaks())
    scheduler_->at(
        state_->thread_of(one.rank), one.when,
        [alive = std::weak_ptr(state_), one] {
          if (const auto state = alive.lock()) state->peer_left(one.rank, one.peer);
        },
        true);
}

SimNetwork::~SimNetwork() = default;

std::shared_ptr<Waiter> SimNetwork::waiter(int rank) const {
  return Scheduler::waiter_of(scheduler_, state_->thread_of(rank));
}

std::shared_ptr<Transport> SimNetwork::transport(int rank) {
  return std::make_shared<SimTransport>(state_, waiter(rank), rank);
}

}  // namespace trireme::inline v0::net
