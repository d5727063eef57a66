// Places: which ranks share a host, and where on it a rank stands. A value; pure.
#pragma once

#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace job {

struct Places {
  int local_rank = 0, local_size = 1;  // among the ranks of its host
  int host_rank = 0, num_hosts = 1;    // hosts in the order of their lowest ranks
  std::vector<int> host = {0};         // the ranks on its host, ascending
  std::vector<int> across = {0};       // of every host that has one: the rank with its local rank
};

/// Of `rank`; hosts[r] names the host of rank r.
Places places_of(const std::vector<std::string>& hosts, int rank);

}  // namespace job
}  // namespace v0
}  // namespace trireme
