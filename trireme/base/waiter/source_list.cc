#include "trireme/base/waiter/source_list.h"

#include <algorithm>
#include <utility>

namespace trireme::inline v0 {

bool SourceList::remove(const ProgressSource* source) {
  const auto at = std::find_if(sources_.begin(), sources_.end(),
                               [&](const auto& one) { return one.get() == source; });
  if (at == sources_.end()) return false;
  removed_.push_back(std::move(*at));
  return true;
}

bool SourceList::any_pending() const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const auto& source) { return source && source->pending(); });
}

void SourceList::arm(bool sleeping) noexcept {
  armed_ = sleeping;
  for (const auto& source : sources_) {
    if (source) source->arm(sleeping);
  }
}

void SourceList::forget_removed() {
  std::erase(sources_, nullptr);
  const auto last = std::exchange(removed_, {});  // destroyed when nobody iterates over sources_
}

}  // namespace trireme::inline v0
