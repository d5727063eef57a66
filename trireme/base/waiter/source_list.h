// SourceList: the sources that a RealWaiter polls. Used in the progress context only.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/base/waiter.h"

namespace trireme::inline v0 {

class SourceList {
 public:
  void add(std::shared_ptr<ProgressSource> source) { sources_.push_back(std::move(source)); }
  /// compact() releases the last reference, as poll() may be running. False if it is unknown.
  bool remove(const ProgressSource* source) {
    const auto at = std::find_if(sources_.begin(), sources_.end(),
                                 [&](const auto& one) { return one.get() == source; });
    if (at == sources_.end()) return false;
    removed_.push_back(std::move(*at));
    return true;
  }
  /// True if any source advanced.
  bool poll() {
    bool moved = false;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (ProgressSource* source = sources_[i].get()) moved |= source->poll();
    }
    return moved;
  }
  bool any_pending() const {
    return std::any_of(sources_.begin(), sources_.end(),
                       [](const auto& source) { return source && source->pending(); });
  }
  /// Tells each whether the context is about to sleep.
  void arm(bool sleeping) noexcept {
    armed_ = sleeping;
    for (const auto& source : sources_) {
      if (source) source->arm(sleeping);
    }
  }
  bool armed() const noexcept { return armed_; }
  /// Releases the removed sources. Not during poll().
  void compact() {
    if (removed_.empty()) return;
    std::erase(sources_, nullptr);
    const auto last = std::exchange(removed_, {});  // destroyed when nobody iterates over sources_
  }

 private:
  std::vector<std::shared_ptr<ProgressSource>> sources_;  // null where removed
  std::vector<std::shared_ptr<ProgressSource>> removed_;
  bool armed_ = false;
};

}  // namespace trireme::inline v0
