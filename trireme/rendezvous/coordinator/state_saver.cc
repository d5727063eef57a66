#include "trireme/rendezvous/coordinator/state_saver.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::rendezvous {

constexpr Duration kFirstPause = std::chrono::milliseconds(100),
                   kLongestPause = std::chrono::seconds(2);

StateSaver::StateSaver(std::shared_ptr<StateStore> store, Duration patience,
                       std::function<void(std::exception_ptr)> on_lost)
    : store_(std::move(store)), patience_(patience), on_lost_(std::move(on_lost)) {}

bool StateSaver::save(const std::string& text, const std::function<void(bool away)>& tell_away) {
  if (!store_) return true;
  if (lost_) return false;
  const TimePoint start = steady_now();
  Duration pause = kFirstPause;
  try {
    Event pauses;  // never set
    for (;; pauses.wait(pause)) {
      try {
        store_->save(text);
        break;
      } catch (const ResourceError& error) {
        if (steady_now() - start > patience_) throw;
        if (pause == kFirstPause) {
          observe::warning(error.message() +
                           ". The training goes on, and its ranks cannot change "
                           "until the store is back.");
          tell_away(true);
        }
        pause = std::min(2 * pause, kLongestPause);
      }
    }
    if (pause > kFirstPause) tell_away(false);
  } catch (...) {
    lost_ = true;
    if (on_lost_) on_lost_(std::current_exception());
    return false;
  }
  return true;
}

void StateSaver::clear() {
  if (store_) store_->clear();
  cleared_ = true;
}

}  // namespace trireme::inline v0::rendezvous
