#include "trireme/comm/rounds/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/rounds/program.h"
#include "trireme/comm/rounds/route.h"

namespace trireme::inline v0::comm {
namespace {

const Generator& ring_generator() { return find_algorithm(OpKind::AllReduce, "ring")->generator; }

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Registry, FindsWhatShips) {
  const AlgorithmEntry* found = find_algorithm(OpKind::AllReduce, "ring");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->name, "ring");
  EXPECT_FALSE(found->about.empty());
  EXPECT_EQ(find_algorithm(OpKind::Broadcast, "ring"), nullptr);
  EXPECT_EQ(find_algorithm(OpKind::AllReduce, "no such"), nullptr);
}

TEST(Registry, EveryAlgorithmThatShipsEndsWithTheSum) {
  for (const OpKind kind :
       {OpKind::AllReduce, OpKind::Broadcast, OpKind::AllGather, OpKind::ReduceScatter}) {
    const auto entries = algorithms_of(kind);
    EXPECT_FALSE(entries.empty()) << name_of(kind);
    for (const AlgorithmEntry* entry : entries) {
      for (int size = 1; size <= 16; ++size) {
        const Program program = record(entry->name, entry->generator, size, size / 2);
        EXPECT_NO_THROW(resolve(entry->name, program, layout_of(kind, size, size, size / 2)))
            << name_of(kind) << " " << entry->name << " on " << size << " ranks";
      }
    }
  }
}

TEST(Registry, TakesOnesOwnAndKeepsItsAddress) {
  const AlgorithmEntry* own =
      register_all_reduce("registry_own", ring_generator(), "for this test");
  EXPECT_EQ(find_algorithm(OpKind::AllReduce, "registry_own"), own);
  EXPECT_EQ(algorithms_of(OpKind::AllReduce).back(), own);
}

TEST(Registry, RefusesNamesThatAreTakenReservedOrTooLong) {
  EXPECT_THAT([] { register_all_reduce("ring", ring_generator()); },
              ThrowsMessage<ConfigError>(HasSubstr("an algorithm of this name exists")));
  for (const char* const name : {"auto", "direct", "mpi-native", "nccl", "nccl-native"})
    EXPECT_THAT([&] { register_all_reduce(name, ring_generator()); },
                ThrowsMessage<ConfigError>(HasSubstr("the name is reserved")))
        << name;
  EXPECT_THAT([] { register_all_reduce("a name of seventeen", ring_generator()); },
              ThrowsMessage<ConfigError>(HasSubstr("1 to 16 characters")));
}

}  // namespace
}  // namespace trireme::inline v0::comm
