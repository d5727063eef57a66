// Opens an S3 storage.
#pragma once

#include <string>

#include "trireme/storage/s3/client.h"
#include "trireme/storage/s3/lease.h"
#include "trireme/storage/storage.h"

namespace trireme::inline v0::storage::s3 {

/// `address`: "s3://BUCKET/PREFIX". Connects to nothing. Throws ConfigError.
Location open(const std::string& address, Service service, RetryOptions retry = {},
              LeaseOptions lease = {});
/// With the service that the environment names.
Location open(const std::string& address);

}  // namespace trireme::inline v0::storage::s3
