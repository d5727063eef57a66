// Claim: a job's lock on the place of its checkpoints, from which the job learns that it has lost it.
//
// A job that hung for long enough loses its lock to another job (observe/folder_lock.h, s3/lease.h). When
// it goes on, it may still believe that the place is its own. No LibTorch.
#pragma once

#include <memory>
#include <string>

#include "trireme/storage/storage.h"

namespace trireme::inline v0::storage {

class Claim {
 public:
  /// `digest` is that of another process of the job.
  Claim(Location place, std::string digest);
  /// The claim of the job that has locked `place`; null if none has. ResourceError.
  static std::shared_ptr<const Claim> of(const Location& place);

  /// Throws ConfigError naming the other job, if another job has locked the place, and ResourceError if the
  /// storage does not tell.
  void check() const;
  /// Names the lock, in a line.
  const std::string& digest() const noexcept { return digest_; }

 private:
  const Location place_;
  const std::string digest_;
};

}  // namespace trireme::inline v0::storage
