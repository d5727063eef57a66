// The hosts of a job: `-H node07:4,node08:4` or a hostfile, and which process runs where. Pure,
// except read_hostfile() and is_this_host(). Malformed input is a ConfigError that names its place.
#pragma once

#include <string>
#include <vector>

#include "trireme/rendezvous/roles.h"

namespace trireme::inline v0::launch {

struct HostSlots {
  std::string name;  // as ssh takes it: "node07", "me@10.0.0.7"
  int slots = 1;     // workers that it takes
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

/// "node07:4,node08". A host without a number has one slot; those of a repeated host are added.
std::vector<HostSlots> parse_hosts(const std::string& list);
/// One host per line: "node07 slots=4", "node07:4" or "node07"; # begins a comment.
std::vector<HostSlots> read_hostfile(const std::string& path);

int slots_of(const std::vector<HostSlots>& hosts);
/// How many of `workers` each host gets: they fill the slots in order. ConfigError if there are too
/// few slots.
std::vector<int> workers_by_host(int workers, const std::vector<HostSlots>& hosts);
/// The host of each process, as an index into `hosts`. Servers and the evaluator take no slots:
/// they go to the hosts in turn.
std::vector<int> place_processes(const rendezvous::Roles& roles,
                                 const std::vector<HostSlots>& hosts);
/// "node07: ranks 0 to 3, server 0; node08: ranks 4 to 7, server 1".
std::string describe_places(const rendezvous::Roles& roles, const std::vector<HostSlots>& hosts,
                            const std::vector<int>& places);

/// True for this host's name, with or without its domain, and for localhost.
bool is_this_host(const std::string& name);
/// Without "user@".
std::string host_without_user(const std::string& name);

}  // namespace trireme::inline v0::launch
