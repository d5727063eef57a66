#include "trireme/base/work.h"

#include <algorithm>
#include <cstddef>

#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/base/work_source.h"

namespace trireme::inline v0 {

using detail::WorkState;

namespace {

// Tells the owner when a thread begins and ends to block.
class WaitNotice {
 public:
  WaitNotice(WorkOwner* owner, Waiter& waiter, std::string_view description, TimePoint start)
      : owner_(owner), waiter_(waiter), description_(description), start_(start) {
    if (owner_) owner_->on_wait_begin(description_);
  }
  ~WaitNotice() {
    if (owner_) owner_->on_wait_end(description_, waiter_.now() - start_);
  }
  WaitNotice(const WaitNotice&) = delete;

 private:
  WorkOwner* const owner_;
  Waiter& waiter_;
  const std::string_view description_;
  const TimePoint start_;
};

// Combines the device sides of several Works: enqueued when all are.
class DeviceSides final : public DeviceSide {
 public:
  explicit DeviceSides(std::vector<std::shared_ptr<DeviceSide>> parts) : parts_(std::move(parts)) {}
  bool enqueued() const noexcept override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [](const auto& one) { return one->enqueued(); });
  }
  void wait_on(Stream stream) override {
    for (const auto& one : parts_) one->wait_on(stream);
  }

 private:
  const std::vector<std::shared_ptr<DeviceSide>> parts_;
};

}  // namespace

detail::WorkState::~WorkState() {
  if (status.load(std::memory_order_acquire) == Failed && !seen.load() && owner) {
    owner->on_unseen_failure(error);
  }
}

Work Work::failed(std::exception_ptr error) {
  auto state = std::make_shared<WorkState>();
  state->error = std::move(error);
  state->status.store(WorkState::Failed, std::memory_order_release);
  return Work(std::move(state));
}

bool Work::done() const noexcept {
  return !state_ || state_->status.load(std::memory_order_acquire) != WorkState::Pending;
}

void Work::wait(Deadline deadline) const {
  if (!state_) return;
  state_->seen.store(true);
  if (!done()) block([this] { return done(); }, deadline);
  if (state_->status.load(std::memory_order_acquire) == WorkState::Failed) {
    std::rethrow_exception(state_->error);
  }
}

void Work::block(const std::function<bool()>& ready, Deadline deadline) const {
  if (ready()) return;
  Waiter& waiter = *state_->waiter;
  WorkOwner* owner = state_->owner.get();
  const TimePoint start = waiter.now();
  const WaitNotice notice(owner, waiter, state_->description, start);
  TimePoint until = deadline.or_else(owner ? owner->timeout() : Deadline::never()).from(start);
  while (!waiter.wait_until(ready, until)) {
    const TimePoint now = waiter.now();
    if (!owner) {
      throw TimeoutError("waited in vain for " + state_->description,
                         {.operation = state_->description});
    }
    until = owner->on_deadline(now, now - start);
  }
}

void Work::wait_on(Stream stream) const {
  if (!state_ || !state_->device) return wait();
  block([this] { return done() || state_->device->enqueued(); }, Deadline::job());
  if (done()) return wait();
  state_->device->wait_on(stream);
}

void Work::on_settled(std::function<void(const std::exception_ptr&)> next) const {
  if (!state_) return next(nullptr);
  state_->seen.store(true);
  {
    std::lock_guard lock(state_->mutex);
    if (state_->status.load(std::memory_order_acquire) == WorkState::Pending) {
      state_->continuations.push_back(std::move(next));
      return;
    }
  }
  const auto call = [state = state_, next = std::move(next)] { next(state->error); };
  if (state_->waiter) {
    state_->waiter->run(call);
  } else {
    call();
  }
}

Work Work::then(std::function<void()> next) const {
  if (!state_) {
    try {
      next();
      return Work();
    } catch (...) {
      return failed(std::current_exception());
    }
  }
  WorkSource source(state_->waiter, state_->owner, state_->description);
  on_settled([source, next = std::move(next)](const std::exception_ptr& error) {
    if (error) return source.fail(error);
    try {
      next();
      source.complete();
    } catch (...) {
      source.fail(std::current_exception());
    }
  });
  return source.work();
}

Work Work::all(std::span<const Work> works) {
  struct Gather {
    std::atomic<std::size_t> left;
    std::mutex mutex;
    std::exception_ptr first;
  };
  std::vector<Work> open;
  for (const Work& work : works) {
    if (work.state_) open.push_back(work);
  }
  if (open.empty()) return Work();
  if (open.size() == 1) return open.front();
  // A Work of failed() has no waiter.
  const auto with_waiter = std::find_if(
      open.begin(), open.end(), [](const Work& work) { return work.state_->waiter != nullptr; });
  const auto& model = with_waiter == open.end() ? *open.front().state_ : *with_waiter->state_;
  WorkSource source(model.waiter, model.owner, model.description);
  std::vector<std::shared_ptr<DeviceSide>> sides;
  for (const Work& work : open) {
    if (work.state_->device) sides.push_back(work.state_->device);
  }
  if (sides.size() == open.size())
    source.set_device(std::make_shared<DeviceSides>(std::move(sides)));
  auto gather = std::make_shared<Gather>();
  gather->left = open.size();
  for (const Work& work : open) {
    work.on_settled([gather, source](const std::exception_ptr& error) {
      if (error) {
        std::lock_guard lock(gather->mutex);
        if (!gather->first) gather->first = error;
      }
      if (gather->left.fetch_sub(1) != 1) return;
      source.settle(gather->first);
    });
  }
  return source.work();
}

WorkSource::WorkSource(std::shared_ptr<Waiter> waiter, std::shared_ptr<WorkOwner> owner,
                       std::string description)
    : state_(std::make_shared<WorkState>()) {
  state_->waiter = std::move(waiter);
  state_->owner = std::move(owner);
  state_->description = std::move(description);
}

bool WorkSource::settled() const noexcept {
  return state_->status.load(std::memory_order_acquire) != WorkState::Pending;
}

void WorkSource::settle(std::exception_ptr error) const {
  std::vector<WorkState::Continuation> continuations;
  {
    std::lock_guard lock(state_->mutex);
    if (settled()) return;
    state_->error = error;
    state_->status.store(error ? WorkState::Failed : WorkState::Done, std::memory_order_release);
    continuations.swap(state_->continuations);
  }
  if (state_->waiter) state_->waiter->wake();
  for (const auto& next : continuations) next(error);
}

}  // namespace trireme::inline v0
