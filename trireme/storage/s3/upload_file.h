// UploadFile: a file that is written to a bucket. A small one is sent at once; a larger one in
// parts, some of them at the same time.
//
// At most kParallel + 1 parts are in memory. The object exists when finish() returns, and not
// before. One thread at a time.
#pragma once

#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/storage/file_system.h"
#include "trireme/storage/s3/client.h"

namespace trireme::inline v0::storage::s3 {

class UploadFile final : public OutputFile {
 public:
  static constexpr int kParallel = 4;
  /// S3 takes 10,000 parts of at least 5 MiB: files up to 160 GB, and beyond that larger parts.
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
  const std::string key_;
  std::vector<std::byte> part_;
  std::optional<Upload> upload_;                  // null: everything fits into one part so far
  std::deque<std::future<std::string>> sending_;  // their ETags
  std::vector<std::string> etags_;
  int parts_ = 0;
};

}  // namespace trireme::inline v0::storage::s3
