// How groups are made from a communicator, and how an engine is closed.
#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/choice/selection.h"
#include "trireme/comm/device_backend.h"
#include "trireme/comm/engine.h"
#include "trireme/net/alone_transport.h"
#include "trireme/net/sub_transport.h"

namespace trireme::inline v0::comm {

std::shared_ptr<Communicator> Communicator::split(int color, int key) {
  const std::size_t ranks = static_cast<std::size_t>(size());
  std::vector<std::int32_t> mine{color, key}, all(2 * ranks);
  all_gather(Buffer::of(std::span(mine)), Buffer::of(std::span(all)), {.label = "split"}).wait();
  if (color < 0) return nullptr;
  std::vector<int> members;
  for (int rank = 0; rank < size(); ++rank) {
    if (all[2 * static_cast<std::size_t>(rank)] == color) members.push_back(rank);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return all[2 * static_cast<std::size_t>(a) + 1] < all[2 * static_cast<std::size_t>(b) + 1];
  });
  const std::string group = name() + "/" + std::to_string(color);
  const std::uint64_t id = engine_->group_id(members, group);
  return std::shared_ptr<Communicator>(
      new Communicator(engine_->group(std::move(members), group, id)));
}

std::shared_ptr<Communicator> Communicator::subgroup(std::span<const int> ranks,
                                                     std::string_view group) {
  std::vector<bool> seen(static_cast<std::size_t>(size()));
  for (const int member : ranks) {
    require(member >= 0 && member < size(), "subgroup",
            "rank " + std::to_string(member) + " of " + std::to_string(size()) + " ranks");
    require(!seen[static_cast<std::size_t>(member)], "subgroup",
            "rank " + std::to_string(member) + " is named twice");
    seen[static_cast<std::size_t>(member)] = true;
  }
  require(seen[static_cast<std::size_t>(rank())], "subgroup",
          "rank " + std::to_string(rank()) + " makes a group that it is no member of");
  const std::uint64_t id = engine_->group_id(ranks, group);
  return std::shared_ptr<Communicator>(
      new Communicator(engine_->group({ranks.begin(), ranks.end()}, std::string(group), id)));
}

std::uint64_t Engine::group_id(std::span<const int> ranks, std::string_view name) {
  std::lock_guard lock(mutex_);
  const std::uint64_t times = made_[net::group_id(id_, ranks, name, 0)]++;
  return net::group_id(id_, ranks, name, times);
}

std::shared_ptr<Engine> Engine::group(std::vector<int> ranks, std::string name, std::uint64_t id) {
  CommunicatorOptions options = options_;
  options.name = std::move(name);
  options.algorithm = algorithm_of_groups(options.algorithm);
  options.host_of_rank.clear();
  options.world_ranks.clear();
  for (const int rank : ranks) {
    options.world_ranks.push_back(world_rank(rank));
    if (options_.host_of_rank.empty()) continue;
    options.host_of_rank.push_back(options_.host_of_rank[static_cast<std::size_t>(rank)]);
  }
  std::shared_ptr<net::Transport> transport;
  if (ranks.size() == 1) {
    transport = std::make_shared<net::AloneTransport>(waiter_);
  } else {
    transport = net::make_sub_transport(transport_, std::move(ranks), id);
  }
  auto engine = create(std::move(transport), std::move(options), family_);
  engine->id_ = id;
  return engine;
}

int Engine::world_rank(int rank) const noexcept {
  return options_.world_ranks.empty() ? rank : options_.world_ranks[static_cast<std::size_t>(rank)];
}

std::string Engine::group_text() const { return head_ ? "" : " in group " + options_.name; }

// Waits for the device, which may still write to buffers of broken calls.
void Engine::close() noexcept {
  waiter_->run([self = shared_from_this()] { self->leave(); });
  if (!head_ || !device_) return;
  try {
    const TimePoint end = waiter_->now() + options_.timeout + std::chrono::seconds(1);
    waiter_->wait_until([this] { return device_->gone(); }, end);
  } catch (const std::exception&) {  // called in the progress context, which must not wait
  }
}

// A group may be destroyed before its set-up has ended. Since the peers need its messages, the
// engine then keeps itself alive until its queue is empty.
void Engine::leave() noexcept {
  const bool working = device_ && device_->busy();
  if (device_ && !working && !broken()) device_->detach();
  const bool complete = !first_user_call() && open_messages_ == 0 && !working && !broken();
  if (complete && !head_) {
    leaving_ = true;
    self_ = shared_from_this();
    if (queue_.empty()) retire();
    return;
  }
  if (complete && arenas_ && arenas_->board())
    board().own().complete = 1;  // peers need not fail: nothing is missing
  fail(std::make_exception_ptr(
      PeerLost("rank " + std::to_string(world_rank(rank_)) + " has left " + options_.name,
               {.rank = world_rank(rank_), .advice = "Wait for all Works before the Job ends."})));
  retire();
}

void Engine::retire() noexcept {
  const std::shared_ptr<Engine> last = std::exchange(self_, nullptr);
  if (device_) device_->detach();
  if (const auto poller = std::exchange(poller_, nullptr)) waiter_->remove(poller.get());
}

Engine::~Engine() {
  if (!arenas_) return;
  waiter_->run([transport = transport_, arenas = std::shared_ptr<Arenas>(std::move(arenas_))] {
    arenas->unmap_all();
  });
}

}  // namespace trireme::inline v0::comm
