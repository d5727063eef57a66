// A lease: one job at a time writes below a prefix of a bucket.
//
// The object PREFIX/.lock names its holder (observe/lock_holder.h), who writes it again every
// `touch_every`. A conditional PUT (If-None-Match) makes it, and it is read back since some
// services ignore the condition. Another process that finds it
//
//   refuses     if it sees that the holder runs (the same kernel), or that the object is touched
//   takes over  if it sees that the holder has ended, or after `patience` without a touch
//
// Times of touches are the service's, so a clock that jumps here decides nothing.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trireme/observe/lock_holder.h"
#include "trireme/storage/s3/client.h"

namespace trireme::inline v0::storage::s3 {

struct LeaseOptions {
  std::optional<observe::LockHolder> self = std::nullopt;  // nullopt: this process
  Duration touch_every = std::chrono::seconds(10);
  Duration patience = std::chrono::seconds(35);
  Duration look = std::chrono::seconds(1);
  Duration longest_call = std::chrono::seconds(8);  // of a touch, and of each call at the end
};

/// When the result is destroyed, the lease ends and its object is removed. Throws ConfigError
/// naming the holder, or if the bucket refuses; ResourceError.
std::shared_ptr<void> take_lease(std::shared_ptr<S3Client> client, const Address& address,
                                 LeaseOptions options = {});

}  // namespace trireme::inline v0::storage::s3
