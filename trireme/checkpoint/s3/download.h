// Copies an object to a private temporary file, in ranges, some of them at the same time.
#pragma once

#include <memory>
#include <string>

#include "trireme/checkpoint/s3/client.h"

namespace trireme::inline v0::checkpoint::s3 {

/// A file without a name in TMPDIR, else in /tmp. It vanishes with this object and all mappings.
class TemporaryFile {
 public:
  /// `title`: what is copied there, for errors. Throws ResourceError.
  explicit TemporaryFile(std::string title);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  void write_at(std::int64_t at, std::string_view bytes) const;
  int descriptor() const noexcept { return descriptor_; }

 private:
  [[noreturn]] void fail(int error) const;

  const std::string title_;
  int descriptor_ = -1;
};

/// At most 32 MiB of the object are in this process's own memory. Throws ResourceError.
std::shared_ptr<TemporaryFile> download(S3Client& client, const std::string& key,
                                        const Object& object, const std::string& title);

}  // namespace trireme::inline v0::checkpoint::s3
