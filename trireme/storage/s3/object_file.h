// ObjectFile: an object of a bucket that is read by ranges. A large range is read in parts, some of
// them at the same time.
#pragma once

#include <memory>
#include <string>

#include "trireme/storage/file_system.h"
#include "trireme/storage/s3/client.h"

namespace trireme::inline v0::storage::s3 {

class ObjectFile final : public InputFile {
 public:
  static constexpr std::int64_t kPartBytes = 8 << 20;
  static constexpr std::size_t kParallel = 4;

  /// `object`: as head() has it. An object that is replaced meanwhile is a CheckpointError.
  ObjectFile(std::shared_ptr<S3Client> client, std::string key, Object object)
      : client_(std::move(client)), key_(std::move(key)), object_(std::move(object)) {}
  std::int64_t size() const noexcept override { return object_.bytes; }
  void read(std::int64_t at, std::span<std::byte> to) override;

 private:
  const std::shared_ptr<S3Client> client_;
  const std::string key_;
  const Object object_;
};

}  // namespace trireme::inline v0::storage::s3
