#include "tests/conformance/collectives/groups.h"

#include "trireme/testing/run_ranks.h"

namespace trireme::test {

void run_group(const Group& group, const std::function<void(comm::Communicator&)>& body) {
  testing::run_ranks(group.size, [&](testing::RankContext& rank) { body(*rank.world); },
                     {.seed = group.seed, .algorithm = group.algorithm});
}

}  // namespace trireme::test
