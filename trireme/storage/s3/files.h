// The files of a bucket: UploadFile writes one, ObjectFile reads one. Large files and ranges travel
// in parts, some at the same time. One thread at a time.
#pragma once

#include <deque>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "trireme/storage/file_system.h"
#include "trireme/storage/s3/client.h"

namespace trireme::inline v0::storage::s3 {

/// At most kParallel + 1 parts are in memory. The object does not exist before finish(), which
/// throws ResourceError if another job has given the upload up meanwhile.
class UploadFile final : public OutputFile {
 public:
  static constexpr int kParallel = 4;
  /// S3 takes 10,000 parts of at least 5 MiB. The first 9,000 (151 GB) have this size; later ones
  /// are larger.
  static constexpr std::size_t kPartBytes = 16 << 20;

  UploadFile(std::shared_ptr<S3Client> client, std::string key);
  /// Without finish(): gives the upload up.
  ~UploadFile() override;
  void write(std::span<const std::byte> bytes) override;
  void finish() override;

 private:
  std::size_t part_bytes() const noexcept;
  void send_part();
  void take_first();

  const std::shared_ptr<S3Client> client_;
  const Upload upload_;
  bool finished_ = false;
  std::vector<std::byte> part_;
  std::deque<std::future<std::string>> sending_;  // their ETags
  std::vector<std::string> etags_;
  int parts_ = 0;
};

/// An object that is read by ranges.
class ObjectFile final : public InputFile {
 public:
  static constexpr std::int64_t kPartBytes = 8 << 20;
  static constexpr std::size_t kParallel = 4;

  /// `object`: from head(). read() throws CheckpointError if the object was replaced meanwhile.
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
