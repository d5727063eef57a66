// Claim: a job's lock on the place of its checkpoints. It tells whether the job still has the lock.
//
// A job that hangs for long loses its lock to another job (observe/folder_lock.h, s3/lease.h), and
// does not notice that when it goes on. No LibTorch.
#pragma once

#include <memory>
#include <string>

#include "trireme/storage/storage.h"

namespace trireme::inline v0::storage {

class Claim {
 public:
  /// `digest`: digest() of another process of the job.
  Claim(Location place, std::string digest);
  /// The claim of the job that has locked `place`; null if none has. ResourceError.
  static std::shared_ptr<const Claim> of(const Location& place);

  /// Throws ConfigError naming the job if another one has locked the place; ResourceError.
  void check() const;
  /// The hash of the lock's text: equal for all processes of the job.
  const std::string& digest() const noexcept { return digest_; }

 private:
  const Location place_;
  const std::string digest_;
};

}  // namespace trireme::inline v0::storage
