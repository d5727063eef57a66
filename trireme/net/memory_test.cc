// Shared memory: two mappings of it, and where large mappings begin.
#include "trireme/net/shm/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

namespace trireme::net {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(SharedMemory, TwoMappingsAreOneMemory) {
  for (const std::size_t bytes : {std::size_t{1}, 3 * kMiB, 9 * kMiB + 5}) {
    const CreatedMemory own = create_memory(bytes);
    const auto peer = open_memory(own.descriptor, bytes);
    ASSERT_EQ(peer->bytes().size(), bytes);
    EXPECT_NE(peer->bytes().data(), own.memory->bytes().data());
    own.memory->bytes()[bytes - 1] = std::byte{7};
    EXPECT_EQ(peer->bytes()[bytes - 1], std::byte{7});
  }
}

// Mappings that are a multiple of 256 MiB apart collide in caches. Here no distance is even a
// multiple of 1 MiB, for any size.
TEST(SharedMemory, LargeMappingsDoNotBeginAtEqualPlaces) {
  for (const std::size_t bytes : {4 * kMiB, 128 * kMiB, 256 * kMiB, 256 * kMiB - (68 << 10)}) {
    const CreatedMemory own = create_memory(bytes);
    std::vector<std::shared_ptr<SharedMemory>> peers;
    std::set<std::uintptr_t> begins = {
        reinterpret_cast<std::uintptr_t>(own.memory->bytes().data()) % kMiB};
    for (int rank = 1; rank < 8; ++rank) {
      peers.push_back(open_memory(own.descriptor, bytes));
      begins.insert(reinterpret_cast<std::uintptr_t>(peers.back()->bytes().data()) % kMiB);
    }
    EXPECT_EQ(begins.size(), 8u) << bytes;
  }
}

}  // namespace
}  // namespace trireme::net
