#include "trireme/storage/s3/upload_file.h"

#include <algorithm>
#include <utility>

namespace trireme::inline v0::storage::s3 {
namespace {

constexpr int kEqualParts = 9000;  // of at most 10,000; the parts after them are larger
constexpr std::size_t kGrowth = 64;

}  // namespace

UploadFile::UploadFile(std::shared_ptr<S3Client> client, std::string key)
    : client_(std::move(client)), key_(std::move(key)) {}

UploadFile::~UploadFile() {
  for (auto& part : sending_) part.wait();
  if (!upload_) return;
  try {
    client_->abort_upload(*upload_);
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
  if (!upload_) upload_ = client_->begin_upload(key_);
  if (sending_.size() == kParallel) take_first();
  sending_.push_back(std::async(
      std::launch::async,
      [client = client_, upload = *upload_, number = ++parts_, part = std::exchange(part_, {})] {
        return client->put_part(upload, number, part);
      }));
}

void UploadFile::finish() {
  if (!upload_) {
    client_->put(key_, part_);
    part_ = {};
    return;
  }
  if (!part_.empty()) send_part();
  while (!sending_.empty()) take_first();
  client_->complete_upload(*upload_, etags_);
  upload_.reset();
}

}  // namespace trireme::inline v0::storage::s3
