#include "trireme/storage/s3/files.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace trireme::inline v0::storage::s3 {

constexpr int kEqualParts = 9000;  // of at most 10,000; the parts after them are larger
constexpr std::size_t kGrowth = 64;

UploadFile::UploadFile(std::shared_ptr<S3Client> client, std::string key)
    : client_(std::move(client)), upload_(client_->begin_upload(key)) {}

UploadFile::~UploadFile() {
  for (auto& part : sending_) part.wait();
  if (finished_) return;
  try {
    client_->abort_upload(upload_);
  } catch (...) {  // the next draft gives it up
  }
}

std::size_t UploadFile::part_bytes() const noexcept {
  return parts_ < kEqualParts ? kPartBytes : kPartBytes * kGrowth;
}

void UploadFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (part_.size() == part_bytes()) send_part();
    const std::size_t taken = std::min(bytes.size(), part_bytes() - part_.size());
    part_.insert(part_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
    bytes = bytes.subspan(taken);
  }
}

void UploadFile::take_first() {
  std::future<std::string> first = std::move(sending_.front());
  sending_.pop_front();
  etags_.push_back(first.get());
}

void UploadFile::send_part() {
  if (sending_.size() == kParallel) take_first();
  sending_.push_back(std::async(
      std::launch::async,
      [client = client_, upload = upload_, number = ++parts_, part = std::exchange(part_, {})] {
        return client->put_part(upload, number, part);
      }));
}

void UploadFile::finish() {
  if (!part_.empty() || parts_ == 0) send_part();
  while (!sending_.empty()) take_first();
  client_->complete_upload(upload_, etags_);
  finished_ = true;
}

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
        next = bytes;  // the other threads stop, too
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
