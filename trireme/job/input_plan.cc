#include "trireme/job/input_plan.h"

#include <utility>

namespace trireme::inline v0 {

void JobInput::set_plan(std::shared_ptr<InputPlan> plan) {
  std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
}

std::shared_ptr<InputPlan> JobInput::plan() const {
  std::lock_guard lock(mutex_);
  return plan_;
}

void JobInput::set_follower(std::function<void()> follower) {
  std::lock_guard lock(mutex_);
  follower_ = std::move(follower);
}

void JobInput::begin() {
  std::function<void()> follower;
  {
    std::lock_guard lock(mutex_);
    follower = follower_;
  }
  if (follower) follower();
}

void JobInput::assign(const kernel::Assignment& assignment) {
  std::lock_guard lock(mutex_);
  assignment_ = assignment;
}

kernel::Assignment JobInput::assignment() const {
  std::lock_guard lock(mutex_);
  return assignment_.value_or(kernel::contiguous(ranks_));
}

void JobInput::set_ranks(int ranks) {
  std::lock_guard lock(mutex_);
  ranks_ = ranks;
}

}  // namespace trireme::inline v0
