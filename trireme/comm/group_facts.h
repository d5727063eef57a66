// GroupFacts: the fixed properties of a group of ranks. Any thread.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/communicator_options.h"

namespace trireme::inline v0::comm {

struct GroupFacts {
  /// `head`: the group was not made from another communicator.
  GroupFacts(int rank, int size, bool head, CommunicatorOptions options);

  /// The number in the world of rank `of`, or of this rank. Errors print it.
  int world_rank(int of) const noexcept;
  int world_rank() const noexcept { return world_rank(rank); }
  /// " in group rows"; empty for the head.
  std::string text() const;
  /// PeerLost: "rank 3", followed by `what`, such as " is lost", with `before` before it. `peer`: its
  /// rank in this group.
  std::exception_ptr peer_lost(int peer, const std::string& what,
                               const std::string& before = "") const;
  /// The options of a group of `ranks` of this one.
  CommunicatorOptions options_of(const std::vector<int>& ranks, std::string name) const;

  const int rank, size;
  const bool head;
  const CommunicatorOptions options;
  const std::vector<int> hosts;  // number of each rank's host; empty if unknown
};

}  // namespace trireme::inline v0::comm
