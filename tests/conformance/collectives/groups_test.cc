// Groups of a communicator on every transport: rows and columns at the same time, and leaks of
// thousands of groups that are made and dropped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/conformance/collectives/groups.h"
#include "trireme/comm/collectives.h"
#include "trireme/observe/machine.h"

namespace trireme {
namespace {

using comm::Communicator;

class Groups : public ::testing::TestWithParam<std::string> {
 protected:
  void run(int size, const std::function<void(Communicator&)>& body, std::uint64_t seed = 1) {
    test::run_group({GetParam(), "auto", size, seed}, body);
  }
};

TEST_P(Groups, RowsAndColumnsAtTheSameTime) {
  const int seeds = GetParam() == "sim" ? 20 : 3;
  for (int seed = 1; seed <= seeds; ++seed) {
    run(
        4,
        [&](Communicator& world) {
          const int me = world.rank();
          const auto row = world.split(me / 2, 0), column = world.split(me % 2, 0);
          for (const std::size_t count : {1u, 100u, 5000u, 200000u}) {
            std::vector<float> x(count, float(me)), y(count, float(me)), z(count, float(me));
            std::vector<Work> works;
            if (me % 3 == 0) works.push_back(async::all_reduce(*row, x, Sum));
            works.push_back(async::all_reduce(*column, y, Sum));
            if (me % 3 != 0) works.push_back(async::all_reduce(*row, x, Sum));
            works.push_back(async::all_reduce(world, z, Sum));
            Work::all(works).wait();
            EXPECT_EQ(x, std::vector<float>(count, me < 2 ? 1.0f : 5.0f));
            EXPECT_EQ(y, std::vector<float>(count, me % 2 == 0 ? 2.0f : 4.0f));
            EXPECT_EQ(z, std::vector<float>(count, 6.0f));
          }
        },
        static_cast<std::uint64_t>(seed));
  }
}

TEST_P(Groups, MembersInAnyOrderAndGroupsOfGroups) {
  run(5, [](Communicator& world) {
    const int odd[] = {3, 0, 4}, mine = world.rank();
    if (mine == 3 || mine == 0 || mine == 4) {
      const auto group = world.subgroup(odd, "odd");
      std::vector<std::int32_t> in(1000, mine), out(3000);
      all_gather(*group, in, out);
      EXPECT_EQ(out[0], 3);
      EXPECT_EQ(out[1000], 0);
      EXPECT_EQ(out[2999], 4);
      const int ends[] = {2, 0};
      if (group->rank() != 1) {
        std::vector<double> x(3000, mine);
        all_reduce(*group->subgroup(ends, "ends"), x, Sum);
        EXPECT_EQ(x[2999], 7);
      }
    }
    barrier(world);
  });
}

struct Footprint {
  std::size_t descriptors = 0, mappings = 0, heap = 0;
};

Footprint footprint() {
  Footprint result;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)one, ++result.descriptors;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++result.mappings;
  result.heap = mallinfo2().uordblks;
  return result;
}

// All ranks are threads of this process: rank 0 counts for all while the others wait for it.
TEST_P(Groups, ThousandsComeAndGoAndLeaveNothing) {
  const char* const wanted = std::getenv("TRIREME_TEST_CYCLES");
  const int cycles = wanted ? std::atoi(wanted) : 1000;
  run(3, [&](Communicator& world) {
    const auto cycle = [&](int number) {
      const int me = world.rank();
      const auto group = world.split(number % 2 == 0 ? 0 : (me == 1 ? -1 : 1), -me);
      const int pair[] = {2, 1};
      const auto other = me > 0 ? world.subgroup(pair, "pair") : nullptr;
      if (number % 3 == 0) return;  // dropped while they are being set up
      std::vector<float> x(number % 7 == 1 ? 3000 : 10, 1.0f);
      if (group) all_reduce(*group, x, Sum);
      if (number % 5 == 1 && group) {
        const comm::Arena arena = group->allocate(8192);
        all_reduce(*group, std::span(reinterpret_cast<float*>(arena.bytes().data()), 2048), Sum);
      }
      if (other) barrier(*other);
    };
    Footprint before;
    const auto settled = [&] {
      barrier(world);
      barrier(world);
      const Footprint now = world.rank() == 0 ? footprint() : Footprint();
      barrier(world);
      return now;
    };
    for (int number = 0; number < 30; ++number) cycle(number);
    before = settled();
    for (int number = 0; number < cycles; ++number) cycle(number);
    const Footprint after = settled();
    if (world.rank() != 0) return;
    // A dropped group may still be ending; a leak would add at least one per cycle.
    EXPECT_LT(after.descriptors, before.descriptors + 20);
    EXPECT_LT(after.mappings, before.mappings + 30);
    EXPECT_LT(after.heap, before.heap + (std::size_t{256} << 10));
  });
}

INSTANTIATE_TEST_SUITE_P(Every, Groups, ::testing::Values("sim", "shm", "tcp", "mixed"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trireme
