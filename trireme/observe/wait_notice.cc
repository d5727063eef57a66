#include "trireme/observe/wait_notice.h"

#include <chrono>
#include <mutex>
#include <utility>

#include "trireme/base/words.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::observe {
namespace {

constexpr Duration kFirst = std::chrono::seconds(2);

}  // namespace

// Shared with the waiter's task.
struct WaitNotice::State {
  Waiter& waiter;
  const std::string who;
  const std::function<std::string()> whom;
  const TimePoint began;
  Duration next = kFirst;  // after `began`
  std::mutex mutex;
  bool ended = false;  // guarded by mutex
};

WaitNotice::WaitNotice(Waiter& waiter, std::string who, std::function<std::string()> whom)
    : state_(new State{waiter, std::move(who), std::move(whom), waiter.now()}) {
  plan(state_);
}

WaitNotice::~WaitNotice() {
  const std::lock_guard lock(state_->mutex);
  state_->ended = true;
}

void WaitNotice::plan(const std::shared_ptr<State>& state) {
  state->waiter.run_at(state->began + state->next, [state] {
    const std::lock_guard lock(state->mutex);
    if (state->ended) return;
    const auto waited =
        std::chrono::round<std::chrono::seconds>(state->waiter.now() - state->began);
    info(state->who + " waits for " + state->whom() + " (" +
         duration_text(static_cast<double>(waited.count())) + " so far)");
    state->next *= 2;
    plan(state);
  });
}

}  // namespace trireme::inline v0::observe
