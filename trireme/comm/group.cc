// Makes groups from a communicator, and closes engines.
#include <algorithm>
#include <atomic>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/calls/call_checks.h"
#include "trireme/comm/choice/selection.h"
#include "trireme/comm/device/device_backend.h"
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
  return std::shared_ptr<Communicator>(
      new Communicator(engine_->group(std::move(members), name() + "/" + std::to_string(color))));
}

std::shared_ptr<Communicator> Communicator::subgroup(std::span<const int> ranks,
                                                     std::string_view group) {
  std::vector<bool> seen(static_cast<std::size_t>(size()));
  for (const int member : ranks) {
    checks_->require(member >= 0 && member < size(), "subgroup",
                     "rank " + std::to_string(member) + " is not in this communicator, which has " +
                         "ranks 0 to " + std::to_string(size() - 1));
    checks_->require(!seen[static_cast<std::size_t>(member)], "subgroup",
                     "rank " + std::to_string(member) + " is named twice");
    seen[static_cast<std::size_t>(member)] = true;
  }
  checks_->require(seen[static_cast<std::size_t>(rank())], "subgroup",
                   "rank " + std::to_string(rank()) +
                       " calls subgroup() with ranks that do not include it; only members may");
  return std::shared_ptr<Communicator>(
      new Communicator(engine_->group({ranks.begin(), ranks.end()}, std::string(group))));
}

std::shared_ptr<Engine> Engine::group(std::vector<int> ranks, std::string name) {
  std::uint64_t id = 0;  // the same on all members; separates the group's messages from others
  {
    std::lock_guard lock(mutex_);
    id = net::group_id(id_, ranks, name, made_[net::group_id(id_, ranks, name, 0)]++);
  }
  CommunicatorOptions options = facts.options_of(ranks, std::move(name));
  std::shared_ptr<net::Transport> theirs;
  if (ranks.size() == 1) {
    theirs = std::make_shared<net::AloneTransport>(waiter);
  } else {
    theirs = net::make_sub_transport(transport, std::move(ranks), id);
  }
  auto engine = create(std::move(theirs), std::move(options), family_);
  engine->id_ = id;
  engine->copies = copies;
  return engine;
}

// Waits for the device: before leaving for what it has begun, since after Work::wait_on() only its
// streams wait for that; then because it may still access buffers of broken calls.
void Engine::close() noexcept {
  const bool own_device = facts.head && device;
  try {
    const auto idle = [this] {
      return failure.broken() || (!(device && device->busy()) && !staged->delivering());
    };
    if (!idle()) waiter->wait_until(idle, waiter->now() + facts.options.timeout);
  } catch (const std::exception&) {  // called in the progress context, which must not wait
  }
  const auto left = std::make_shared<std::atomic<bool>>(false);
  waiter->run([engine = shared_from_this(), left] {
    engine->leave();
    *left = true;
    engine->waiter->wake();
  });
  if (!own_device && !copies) return;
  try {
    const TimePoint end = waiter->now() + facts.options.timeout + std::chrono::seconds(1);
    const auto gone = [&] {
      return *left && !staged->pending() && (!own_device || device->gone());
    };
    waiter->wait_until(gone, end);
  } catch (const std::exception&) {  // in the progress context
  }
}

// A group may be destroyed before its set-up has ended. Since the peers need its messages, the
// engine then keeps itself alive until its queue is empty.
void Engine::leave() noexcept {
  const bool working = (device && device->busy()) || staged->busy();
  if (device && !working && !failure.broken()) device->detach();
  const bool complete =
      !queue.first_user_call() && !messages.any_open() && !working && !failure.broken();
  if (complete && !facts.head) {
    leaving_ = true;
    self = shared_from_this();
    if (queue.empty()) retire();
    return;
  }
  if (complete && has_board())
    board().own().complete = 1;  // peers need not fail: nothing is missing
  fail(std::make_exception_ptr(
      PeerLost("rank " + std::to_string(facts.world_rank()) + " has left " + facts.options.name,
               {.rank = facts.world_rank(), .advice = "Wait for all Works before the Job ends."})));
  retire();
}

void Engine::retire() noexcept {
  const std::shared_ptr<Engine> last = std::exchange(self, nullptr);
  if (device) device->detach();
  staged->detach();
  if (std::exchange(watching_, false)) waiter->remove(board_watch.get());
}

Engine::~Engine() {
  if (!arenas) return;
  waiter->run(
      [kept = transport, all = std::shared_ptr<Arenas>(std::move(arenas))] { all->unmap_all(); });
}

}  // namespace trireme::inline v0::comm
