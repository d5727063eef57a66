#include "trireme/storage/claim.h"

#include "trireme/base/error.h"
#include "trireme/base/sha256.h"
#include "trireme/observe/folder_lock.h"

namespace trireme::inline v0::storage {
namespace {

constexpr int kLooks = 3;

// Null if no job has locked the place.
std::unique_ptr<InputFile> open_lock(const Location& place) {
  try {
    return place.storage->open(place.path + "/" + std::string(observe::kLockFile));
  } catch (const CheckpointError&) {  // there is none
    return nullptr;
  }
}

// Empty if no job has locked the place.
std::string lock_of(const Location& place) {
  for (int look = 1;; ++look) {
    const auto lock = open_lock(place);
    if (!lock) return {};
    try {
      return text_of(*lock);
    } catch (const CheckpointError& error) {  // its holder has written it anew meanwhile
      if (look == kLooks) throw ResourceError(error.message(), error.context());
    }
  }
}

std::string digest_of(const std::string& lock) {
  return sha256_hex(std::as_bytes(std::span(lock)));
}

}  // namespace

Claim::Claim(Location place, std::string digest)
    : place_(std::move(place)), digest_(std::move(digest)) {}

std::shared_ptr<const Claim> Claim::of(const Location& place) {
  const std::string lock = lock_of(place);
  return lock.empty() ? nullptr : std::make_shared<const Claim>(place, digest_of(lock));
}

void Claim::check() const {
  const std::string lock = lock_of(place_);
  if (lock.empty() || digest_of(lock) == digest_) return;
  const auto holder = observe::LockHolder::from_text(lock);
  throw ConfigError(place_.path + " is in use by " + (holder ? holder->describe() : "another job") +
                        ", which took it over while this job gave no sign of life",
                    {.operation = "checkpoint", .advice = "Leave the run to that job."});
}

}  // namespace trireme::inline v0::storage
