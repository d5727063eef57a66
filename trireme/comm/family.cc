#include "trireme/comm/family.h"

#include "trireme/comm/engine.h"

namespace trireme::inline v0::comm {

void Family::add(const std::shared_ptr<Engine>& engine) {
  std::erase_if(members_, [](const auto& one) { return one.expired(); });
  members_.push_back(engine);
  if (failure_) engine->break_with(failure_);
}

void Family::fail(const std::exception_ptr& error) noexcept {
  if (failure_) return;
  failure_ = error;
  const auto members = members_;  // a copy: break_with() may change members_
  for (const auto& one : members) {
    if (const auto engine = one.lock()) engine->break_with(error);
  }
}

}  // namespace trireme::inline v0::comm
