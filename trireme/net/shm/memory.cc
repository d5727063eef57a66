#include "trireme/net/shm/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "trireme/base/error.h"
#include "trireme/observe/machine.h"

namespace trireme::inline v0::net {
namespace {

constexpr std::size_t kLarge = std::size_t{4} << 20;  // limits and address matter
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// An address for a large mapping; nullptr: any. Ranks read and write equal offsets of each other's
// memory together. If two mappings of a process are a multiple of 256 MiB apart, such accesses
// collide in the processor's caches (an all-reduce of 1 MiB took eight times as long). So each
// mapping begins at another multiple of 68 KiB modulo 1 MiB; 256 in a row differ.
void* place_for(std::size_t bytes) {
  constexpr std::size_t kSpread = std::size_t{1} << 20, kStep = 68 << 10;
  static std::atomic<std::size_t> count{0};
  void* const room =
      mmap(nullptr, bytes + kSpread, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  munmap(room, bytes + kSpread);
  const std::size_t offset = count.fetch_add(1, std::memory_order_relaxed) * kStep % kSpread;
  const auto begin = reinterpret_cast<std::uintptr_t>(room);
  return reinterpret_cast<void*>(begin + (offset - begin) % kSpread);
}

std::shared_ptr<SharedMemory> map_descriptor(int descriptor, std::size_t bytes) {
  // Only a hint: another thread may have mapped something there meanwhile.
  void* const wanted = bytes < kLarge ? nullptr : place_for(bytes);
  void* const data = mmap(wanted, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                          MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) throw_system_error("mmap of " + std::to_string(bytes) + " bytes");
  return std::make_shared<SharedMemory>(static_cast<std::byte*>(data), bytes);
}

// Refuses sizes that would later end the process by a signal or the out-of-memory killer.
void check_limits(std::size_t bytes) {
  const auto refuse = [&](const std::string& why) {
    throw ResourceError("shared memory of " + std::to_string(bytes) + " bytes is above " + why,
                        {.operation = "net",
                         .advice = "Check the limits on memory and file sizes (ulimit -a, the "
                                   "cgroup's), or use transport tcp."});
  };
  rlimit files{};
  if (getrlimit(RLIMIT_FSIZE, &files) == 0 && bytes > files.rlim_cur) {
    refuse("the limit on file sizes (ulimit -f), which counts for memory files too");
  }
  if (bytes < kLarge) return;
  const std::int64_t memory = observe::memory_left();
  if (observe::memory_total() > 0 && bytes > static_cast<std::size_t>(memory)) {
    refuse("all memory that this process may still use, " + std::to_string(memory) +
           " bytes by the machine's size and its cgroup's limit");
  }
}

}  // namespace

SharedMemory::~SharedMemory() { munmap(data_, std::max<std::size_t>(bytes_, 1)); }

CreatedMemory create_memory(std::size_t bytes) {
  check_limits(bytes);
  Descriptor descriptor(memfd_create("trireme", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor) throw_system_error("memfd_create");
  if (ftruncate(descriptor.get(), static_cast<off_t>(std::max<std::size_t>(bytes, 1))) != 0) {
    throw_system_error("ftruncate to " + std::to_string(bytes) + " bytes");
  }
  if (fcntl(descriptor.get(), F_ADD_SEALS, kSeals) != 0) throw_system_error("sealing a memfd");
  auto memory = map_descriptor(descriptor.get(), bytes);
  return {std::move(memory), std::move(descriptor)};
}

std::shared_ptr<SharedMemory> open_memory(const Descriptor& descriptor, std::size_t bytes) {
  struct stat status {};
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  if (fstat(descriptor.get(), &status) != 0 || seals < 0 || (seals & kSeals) != kSeals ||
      static_cast<std::size_t>(status.st_size) != std::max<std::size_t>(bytes, 1)) {
    throw RefusedError("a peer's shared memory has the wrong size or no seals",
                       {.operation = "shm", .advice = "Run the same version in every process."});
  }
  return map_descriptor(descriptor.get(), bytes);
}

}  // namespace trireme::inline v0::net
