#include "trireme/job/job_groups.h"

#include <utility>
#include <vector>

namespace trireme::inline v0 {

void JobGroups::set_world(std::shared_ptr<comm::Communicator> world) {
  const std::lock_guard lock(mutex_);
  world_ = std::move(world);
  if (failure_) world_->abort(failure_);
}

// A group of all ranks is the world itself.
void JobGroups::split(const rendezvous::Places& places) {
  const auto group = [&](const std::vector<int>& ranks, const char* name) {
    return static_cast<int>(ranks.size()) == world_->size() ? world_
                                                            : world_->subgroup(ranks, name);
  };
  host_ = group(places.host, "host");
  across_ = group(places.across, "across");
}

void JobGroups::drop() {
  across_.reset();
  host_.reset();
  std::unique_lock lock(mutex_);
  const std::shared_ptr<comm::Communicator> old = std::exchange(world_, nullptr);
  lock.unlock();  // before the communicator ends
}

void JobGroups::abort(const std::exception_ptr& error) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<comm::Communicator> broken = world_;
  lock.unlock();
  if (broken) broken->abort(error);
}

void JobGroups::fail(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
  }
  abort(error);
}

std::exception_ptr JobGroups::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace trireme::inline v0
