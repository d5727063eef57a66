#include "trireme/job/job_input.h"

#include <algorithm>

#include "trireme/base/check.h"

namespace trireme::inline v0 {

void JobInput::set_plan(std::shared_ptr<InputPlan> plan) {
  set(plan_, std::move(plan));
  const std::lock_guard lock(readers_mutex_);
  taken_.clear();  // of the Sampler before
}

// A reader that has not consumed the iteration's micro-batch has left it out.
void JobInput::end_iteration() {
  std::erase_if(taken_, [](const Taken& one) { return one.step.has_data; });
}

void JobInput::begin_pass() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(readers_mutex_);
    end_iteration();
    std::vector<InputReader*> readers = readers_;
    std::stable_sort(readers.begin(), readers.end(), [](const auto* a, const auto* b) {
      return std::pair(a->last_, a->turn_) < std::pair(b->last_, b->turn_);
    });
    for (const InputReader* reader : readers) calls.push_back(reader->calls_.begin_pass);
  }
  for (const auto& call : calls) call();
}

void JobInput::begin_micro() {
  std::function<void()> call;
  {
    const std::lock_guard lock(readers_mutex_);
    if (readers_.size() < 2 || readers_.front()->thread_ != std::this_thread::get_id()) return;
    end_iteration();
    call = readers_.front()->calls_.begin_micro;
  }
  call();
}

InputReader::InputReader(std::shared_ptr<JobInput> input, Calls calls)
    : input_(std::move(input)), calls_(std::move(calls)) {
  const std::lock_guard lock(input_->readers_mutex_);
  while (std::ranges::any_of(input_->readers_,
                             [&](const InputReader* other) { return other->number_ == number_; }))
    ++number_;
  last_ = input_->last_;
  input_->readers_.push_back(this);
}

InputReader::~InputReader() {
  const std::lock_guard lock(input_->readers_mutex_);
  std::erase(input_->readers_, this);
}

bool InputReader::has_others() const {
  const std::lock_guard lock(input_->readers_mutex_);
  return input_->readers_.size() > 1;
}

// The micro-step among those consumed that is this reader's next one; null: none.
const JobInput::Taken* InputReader::found() const {
  for (const JobInput::Taken& one : input_->taken_)
    if (one.step.has_data ? one.number > last_ : one.number == last_ + 1) return &one;
  return nullptr;
}

std::optional<MicroStep> InputReader::peek() const {
  const auto plan = input_->plan();
  if (!plan) return std::nullopt;
  const std::lock_guard lock(input_->readers_mutex_);
  if (const JobInput::Taken* const one = found()) return one->step;
  return plan->peek();
}

void InputReader::consume() {
  const auto plan = input_->plan();
  const std::lock_guard lock(input_->readers_mutex_);
  if (const JobInput::Taken* const one = found()) {
    last_ = one->number;
  } else {
    MicroStep step;
    if (plan) {
      const auto next = plan->peek();
      TRIREME_CHECK(next.has_value());
      step = *next;
      plan->consume();
    }
    if (step.has_data) input_->taken_.clear();
    last_ = ++input_->last_;
    input_->taken_.push_back({last_, step});
  }
  turn_ = 0;
  for (const InputReader* reader : input_->readers_)
    if (reader != this && reader->last_ == last_) turn_ = std::max(turn_, reader->turn_ + 1);
}

std::uint32_t InputReader::consumers() const {
  const std::lock_guard lock(input_->readers_mutex_);
  return static_cast<std::uint32_t>(
      std::count_if(input_->readers_.begin(), input_->readers_.end(),
                    [&](const InputReader* reader) { return reader->last_ == last_; }));
}

void InputReader::forget() {
  const std::lock_guard lock(input_->readers_mutex_);
  last_ = input_->last_;
  input_->end_iteration();
}

void InputReader::end_micro() const {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(input_->readers_mutex_);
    for (const InputReader* reader : input_->readers_)
      if (reader != this && reader->thread_ == std::this_thread::get_id())
        calls.push_back(reader->calls_.other_ends);
  }
  for (const auto& call : calls) call();
}

void InputReader::end_batch() {
  std::vector<const InputReader*> ended;
  {
    const std::lock_guard lock(input_->readers_mutex_);
    for (const InputReader* reader : input_->readers_) {
      if (reader->last_ == last_ - 1) return;  // consumed all before: is expected
      if (reader->last_ == last_) ended.push_back(reader);
    }
  }
  std::sort(ended.begin(), ended.end(),
            [](const auto* a, const auto* b) { return a->turn_ < b->turn_; });
  for (const InputReader* reader : ended) reader->calls_.take_part();
}

}  // namespace trireme::inline v0
