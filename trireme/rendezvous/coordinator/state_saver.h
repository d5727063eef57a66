// StateSaver: makes a coordinator's state durable in its store. While the store is full or away, it
// waits and tries again; after `patience`, or a refusal, the store is lost for good.
//
// A part of JobState, under its lock: nothing else happens before a change is durable.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/rendezvous/coordinator/state_store.h"

namespace trireme::inline v0::rendezvous {

class StateSaver {
 public:
  /// `store` null: nothing is saved. `on_lost` is called once.
  StateSaver(std::shared_ptr<StateStore> store, Duration patience,
             std::function<void(std::exception_ptr)> on_lost);

  bool has_store() const noexcept { return store_ != nullptr; }
  /// False if the store is lost. `tell_away` is called with true before a wait, and false after it.
  bool save(const std::string& text, const std::function<void(bool away)>& tell_away);
  /// The job has ended. Throws as StateStore does.
  void clear();
  /// Another coordinator will find the state, and go on from it.
  bool outlives_this() const noexcept { return has_store() && !cleared_; }

 private:
  const std::shared_ptr<StateStore> store_;
  const Duration patience_;
  const std::function<void(std::exception_ptr)> on_lost_;
  bool lost_ = false, cleared_ = false;
};

}  // namespace trireme::inline v0::rendezvous
