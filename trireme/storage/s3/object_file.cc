#include "trireme/storage/s3/object_file.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <vector>

namespace trireme::inline v0::storage::s3 {

void ObjectFile::read(std::int64_t at, std::span<std::byte> to) {
  const auto bytes = static_cast<std::int64_t>(to.size());
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (;;) {
      const std::int64_t begin = next.fetch_add(kPartBytes);
      if (begin >= bytes) return;
      const std::int64_t end = std::min(begin + kPartBytes, bytes);
      try {
        const std::string part = client_->get_range(key_, object_.etag, at + begin, at + end);
        std::memcpy(to.data() + begin, part.data(), part.size());
      } catch (...) {
        next = bytes;  // the others stop, too
        throw;
      }
    }
  };
  const auto parts = static_cast<std::size_t>((bytes + kPartBytes - 1) / kPartBytes);
  if (parts <= 1) return work();
  std::vector<std::future<void>> workers;
  for (std::size_t i = 0; i < std::min(kParallel, parts); ++i)
    workers.push_back(std::async(std::launch::async, work));
  for (auto& worker : workers) worker.wait();
  for (auto& worker : workers) worker.get();
}

}  // namespace trireme::inline v0::storage::s3
