#include "trireme/rendezvous/places.h"

#include <algorithm>

namespace trireme::inline v0::rendezvous {

Places places_of(const std::vector<std::string>& hosts, int rank) {
  std::vector<std::string> names;
  std::vector<std::vector<int>> ranks;  // by host
  for (std::size_t one = 0; one < hosts.size(); ++one) {
    const auto known = std::find(names.begin(), names.end(), hosts[one]);
    const auto host = static_cast<std::size_t>(known - names.begin());
    if (known == names.end()) {
      names.push_back(hosts[one]);
      ranks.emplace_back();
    }
    ranks[host].push_back(static_cast<int>(one));
  }
  Places places;
  const auto here = std::find(names.begin(), names.end(), hosts[static_cast<std::size_t>(rank)]);
  places.host_rank = static_cast<int>(here - names.begin());
  places.num_hosts = static_cast<int>(names.size());
  places.host = ranks[static_cast<std::size_t>(places.host_rank)];
  places.local_size = static_cast<int>(places.host.size());
  const auto self = std::find(places.host.begin(), places.host.end(), rank);
  places.local_rank = static_cast<int>(self - places.host.begin());
  places.across.clear();
  for (const auto& one : ranks) {
    const auto local = static_cast<std::size_t>(places.local_rank);
    if (local < one.size()) places.across.push_back(one[local]);
  }
  return places;
}

}  // namespace trireme::inline v0::rendezvous
