#include "trireme/checkpoint/s3/download.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <vector>

namespace trireme::inline v0::checkpoint::s3 {
namespace {

constexpr std::int64_t kRangeBytes = 8 << 20;
constexpr std::size_t kParallel = 4;

std::string temporary_folder() {
  const char* named = std::getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/tmp";
}

}  // namespace

TemporaryFile::TemporaryFile(std::string title) : title_(std::move(title)) {
  std::string pattern = temporary_folder() + "/trireme-XXXXXX";
  descriptor_ = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail(errno);
  ::unlink(pattern.c_str());
}

TemporaryFile::~TemporaryFile() { ::close(descriptor_); }

void TemporaryFile::fail(int error) const {
  throw ResourceError(
      "cannot copy " + title_ + " to a temporary file in " + temporary_folder() + ": " +
          std::strerror(error),
      {.operation = "checkpoint", .advice = "Name a folder with enough space by TMPDIR."});
}

void TemporaryFile::write_at(std::int64_t at, std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    at += written;
  }
}

std::shared_ptr<TemporaryFile> download(S3Client& client, const std::string& key,
                                        const Object& object, const std::string& title) {
  auto file = std::make_shared<TemporaryFile>(title);
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (;;) {
      const std::int64_t begin = next.fetch_add(kRangeBytes);
      if (begin >= object.bytes) return;
      const std::int64_t end = std::min(begin + kRangeBytes, object.bytes);
      try {
        file->write_at(begin, client.get_range(key, object.etag, begin, end));
      } catch (...) {
        next = object.bytes;  // the others stop, too
        throw;
      }
    }
  };
  const auto ranges = static_cast<std::size_t>((object.bytes + kRangeBytes - 1) / kRangeBytes);
  std::vector<std::future<void>> workers;
  for (std::size_t i = 0; i < std::min(kParallel, ranges); ++i)
    workers.push_back(std::async(std::launch::async, work));
  for (auto& worker : workers) worker.wait();
  for (auto& worker : workers) worker.get();
  return file;
}

}  // namespace trireme::inline v0::checkpoint::s3
