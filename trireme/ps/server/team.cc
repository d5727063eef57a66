#include "trireme/ps/server/team.h"

#include <algorithm>
#include <cstring>

#include "trireme/ps/copy_for_reader.h"

namespace trireme::inline v0::ps {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 15;     // elements: what a thread takes at a time
constexpr std::size_t kWorthIt = std::size_t{1} << 19;  // less is done before a helper is awake

}  // namespace

Team::Team(std::shared_ptr<Waiter> waiter, int threads) : waiter_(std::move(waiter)) {
  for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
}

Team::~Team() {
  stopped_ = true;
  waiter_->wake();
}

void Team::run(std::size_t count, const std::function<void(std::size_t, std::size_t)>& part) {
  if (helpers_.empty() || count < kWorthIt) return in_one_part(count, part);
  part_ = &part;
  count_ = count;
  next_ = 0;
  open_ = true;
  waiter_->wake();
  take_parts();
  open_ = false;
  // A helper that comes from now on finds it closed.
  if (inside_ > 0) waiter_->wait_until([this] { return inside_ == 0; }, TimePoint::max());
}

void Team::take_parts() {
  const std::size_t count = count_;
  for (std::size_t begin = next_.fetch_add(kPart); begin < count; begin = next_.fetch_add(kPart))
    (*part_)(begin, std::min(begin + kPart, count));
}

void Team::help() {
  while (!stopped_) {
    waiter_->wait_until([this] { return stopped_ || (open_ && next_ < count_); }, TimePoint::max());
    ++inside_;
    if (open_) take_parts();
    if (--inside_ == 0) waiter_->wake();
  }
}

void Team::copy(void* to, const void* from, std::size_t bytes, bool reads) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  constexpr std::size_t kUnit = 8;
  run((bytes + kUnit - 1) / kUnit, [&](std::size_t begin, std::size_t end) {
    const std::size_t at = begin * kUnit;
    const std::size_t size = std::min(end * kUnit, bytes) - at;
    copy_for_reader(target + at, source + at, size, reads ? bytes : 0);
  });
}

}  // namespace trireme::inline v0::ps
