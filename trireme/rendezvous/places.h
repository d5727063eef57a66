// Places: which ranks share a host, and this rank's place among them. A value; pure.
#pragma once

#include <string>
#include <vector>

namespace trireme::inline v0::rendezvous {

struct Places {
  int local_rank = 0, local_size = 1;  // among the ranks of its host
  int host_rank = 0, num_hosts = 1;    // hosts are ordered by their lowest ranks
  std::vector<int> host = {0};         // the ranks on this host, ascending
  std::vector<int> across = {0};       // one per host that has it: the rank with this local rank
};

/// The places of `rank`; hosts[r] is the host name of rank r.
Places places_of(const std::vector<std::string>& hosts, int rank);

}  // namespace trireme::inline v0::rendezvous
