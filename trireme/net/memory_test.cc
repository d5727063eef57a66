// Shared memory: two mappings of it, and where large mappings begin.
#include "trireme/net/shm/memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

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

// Whether the kernel has huge pages is its affair. What they need of a mapping is checked.
TEST(SharedMemory, OnHugePagesIsThereAndUnchanged) {
  for (const std::size_t bytes : {std::size_t{1}, 3 * kMiB + 5, 9 * kMiB + 5}) {
    const CreatedMemory own = create_memory(bytes);
    own.memory->bytes()[bytes - 1] = std::byte{7};
    own.memory->use_huge_pages();
    struct stat status {};
    ASSERT_EQ(fstat(own.descriptor.get(), &status), 0);
    EXPECT_GE(static_cast<std::size_t>(status.st_blocks) * 512, bytes);
    EXPECT_EQ(own.memory->bytes()[bytes - 1], std::byte{7});
    EXPECT_EQ(own.memory->bytes()[bytes / 2], bytes == 1 ? std::byte{7} : std::byte{});
    if (bytes < 4 * kMiB) continue;
    const auto peer = open_memory(own.descriptor, bytes);
    for (const SharedMemory* one : {own.memory.get(), peer.get()})
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one->bytes().data()) % (2 * kMiB), 0u);
  }
}

// Mappings that are a multiple of 256 MiB apart collide in caches.
TEST(SharedMemory, LargeMappingsDoNotBeginAtEqualPlaces) {
  for (const std::size_t bytes : {4 * kMiB, 128 * kMiB, 256 * kMiB, 256 * kMiB - (68 << 10)}) {
    const CreatedMemory own = create_memory(bytes);
    std::vector<std::shared_ptr<SharedMemory>> peers;
    std::set<std::uintptr_t> begins = {
        reinterpret_cast<std::uintptr_t>(own.memory->bytes().data()) % (256 * kMiB)};
    for (int rank = 1; rank < 8; ++rank) {
      peers.push_back(open_memory(own.descriptor, bytes));
      begins.insert(reinterpret_cast<std::uintptr_t>(peers.back()->bytes().data()) % (256 * kMiB));
    }
    EXPECT_EQ(begins.size(), 8u) << bytes;
  }
}

}  // namespace
}  // namespace trireme::net
