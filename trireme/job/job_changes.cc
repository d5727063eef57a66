#include "trireme/job/job_changes.h"

#include <utility>

#include "trireme/job/stop_signal.h"

namespace trireme::inline v0 {

using rendezvous::Epoch;

namespace {

constexpr Duration kLookForSignal = std::chrono::milliseconds(100);

}  // namespace

void JobChanges::open(int process, std::shared_ptr<Waiter> waiter, std::function<void()> enter_next,
                      std::function<void()> on_news) {
  process_ = process;
  waiter_ = std::move(waiter);
  enter_next_ = std::move(enter_next);
  on_news_ = std::move(on_news);
}

Epoch JobChanges::epoch() const {
  std::lock_guard lock(mutex_);
  return entered_.value_or(Epoch());
}

TimePoint JobChanges::told() const {
  std::lock_guard lock(mutex_);
  return entered_told_;
}

std::optional<Epoch> JobChanges::next() const {
  std::lock_guard lock(mutex_);
  return entered_ && newer() ? latest_ : std::nullopt;
}

bool JobChanges::await(Duration patience) const {
  if (!elastic()) return false;
  const auto decided = [this] {
    std::lock_guard lock(mutex_);
    return newer() || ended_;
  };
  const auto is_away = [this] {
    std::lock_guard lock(mutex_);
    return away_;
  };
  while (!waiter_->wait_until(decided, waiter_->now() + patience) && patience > Duration::zero() &&
         is_away())
    waiter_->wait_until([&] { return decided() || !is_away(); }, TimePoint::max());
  std::lock_guard lock(mutex_);
  if (left_out_) std::rethrow_exception(left_out_);
  return newer() && !ended_;
}

bool JobChanges::is_over() const {
  std::lock_guard lock(mutex_);
  return left_out_ || (newer() && !ended_);
}

bool JobChanges::may_go_on_after(const Error& error) noexcept {
  return error.code() == ExitCode::PeerLost || error.code() == ExitCode::Timeout ||
         (error.code() == ExitCode::CoordinatorLost && error.peer() >= 0);
}

void JobChanges::tell(const std::function<void()>& news) {
  {
    std::lock_guard lock(mutex_);
    news();
  }
  if (waiter_) waiter_->wake();
}

void JobChanges::set_away(bool away) {
  tell([&] { away_ = away; });
}

void JobChanges::adopt(const Epoch& epoch) {
  {
    std::lock_guard lock(mutex_);
    if (latest_ && epoch.number <= latest_->number) return;
    latest_ = epoch;
    told_ = steady_now();
  }
  waiter_->wake();
  on_news_();
}

bool JobChanges::broken() const {
  std::lock_guard lock(mutex_);
  return entered_ && newer() && (!latest_->at_step_end || latest_->interrupted > entered_->number);
}

std::exception_ptr JobChanges::reason() const {
  std::lock_guard lock(mutex_);
  return std::make_exception_ptr(PeerLost(latest_->cause + "; the job regroups"));
}

void JobChanges::end(std::exception_ptr left_out) {
  tell([&] {
    ended_ = true;
    left_out_ = std::move(left_out);
  });
}

void JobChanges::stop() {
  tell([&] { stops_ = true; });
}

bool JobChanges::goes_on() const {
  std::lock_guard lock(mutex_);
  return !ended_ && !stops_;
}

std::optional<Epoch> JobChanges::await_place() const {
  const auto has_place = [this] { return !ended_ && newer() && latest_->rank_of(process_); };
  const auto is_over = [&] {
    std::lock_guard lock(mutex_);
    return ended_ || stops_ || has_place();
  };
  // A handler of signals cannot wake the waiter.
  while (!waiter_->wait_until(is_over, waiter_->now() + kLookForSignal) &&
         job::stop_signal() == 0) {
  }
  std::lock_guard lock(mutex_);
  return has_place() ? latest_ : std::nullopt;
}

void JobChanges::entered(const Epoch& epoch) {
  std::lock_guard lock(mutex_);
  entered_ = epoch;
  entered_told_ = told_;
}

}  // namespace trireme::inline v0
