#include "trireme/kernel/assignment.h"

#include "trireme/base/check.h"

namespace trireme::inline v0::kernel {

LeafRange group_share(const Assignment& assignment, std::uint32_t total, int group) {
  return shares_of(assignment, total).of(assignment.groups, group);
}

std::vector<std::uint32_t> leaves_of(const Assignment& assignment, std::uint32_t total, int rank) {
  TRIREME_CHECK(rank >= 0);
  const LeafRange share = group_share(assignment, total, assignment.group_of(rank));
  const auto step = static_cast<std::uint32_t>(assignment.members);
  std::vector<std::uint32_t> leaves;
  for (auto at = static_cast<std::uint32_t>(assignment.member_of(rank)); at < share.count;
       at += step)
    leaves.push_back(share.first + at);
  return leaves;
}

}  // namespace trireme::inline v0::kernel
