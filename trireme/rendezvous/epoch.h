// Epoch: the processes that are the ranks of an elastic job, from one change to the next. Rank r is
// the process members[r]. Epochs are numbered from 0; the launcher decides them and the coordinator
// tells every process (docs/design/040-elastic-jobs.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::inline v0::rendezvous {

struct Epoch {
  std::uint32_t number = 0;
  std::vector<int> members;  // ascending
  /// True if all ranks of the epoch before are alive: they finish their step first.
  bool at_step_end = false;
  /// The newest epoch, up to this one, with at_step_end false. A process that missed it learns from
  /// a later epoch that its step was interrupted.
  std::uint32_t interrupted = 0;
  std::string cause;  // "rank 2 was killed by SIGKILL"

  std::optional<int> rank_of(int process) const {
    const auto at = std::lower_bound(members.begin(), members.end(), process);
    if (at == members.end() || *at != process) return std::nullopt;
    return static_cast<int>(at - members.begin());
  }
  friend bool operator==(const Epoch&, const Epoch&) = default;
};

}  // namespace trireme::inline v0::rendezvous
