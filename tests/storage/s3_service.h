// An S3 service of a test's own: s3_server.py on a port that the system picks. It ends with this
// object, or with the process.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "trireme/storage/s3/client.h"

namespace trireme::inline v0::testing {

class S3Service {
 public:
  S3Service();
  ~S3Service();
  S3Service(const S3Service&) = delete;

  /// The one of this program. It has the buckets "models" (empty at first) and "denied".
  static S3Service& shared();

  const storage::s3::Service& service() const noexcept { return service_; }
  /// Without waits between attempts that a test would notice.
  static storage::s3::RetryOptions quick();
  std::shared_ptr<storage::s3::S3Client> client(const std::string& bucket = "models") const;
  /// `faults`: the JSON list of s3_server.py. Earlier ones are forgotten.
  void inject(const std::string& faults) const;
  /// How many of the last inject() have struck.
  int injected() const;

 private:
  storage::s3::Response control(const std::string& method, const std::string& body) const;

  pid_t pid_ = -1;
  int keep_alive_ = -1;  // its standard input
  storage::s3::Service service_;
};

}  // namespace trireme::inline v0::testing
