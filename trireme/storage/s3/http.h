// HttpClient: requests over libcurl, signed for S3. No retries. Thread safe: each thread inside
// send() has its own connection, which is kept for later calls.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/storage/s3/address.h"

namespace trireme::inline v0::storage::s3 {

/// No answer: no connection, a broken one, or one that was silent for too long.
class NoAnswer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Request {
  std::string method = "GET", url;
  std::vector<std::string> headers = {};  // "Name: value"
  std::span<const std::byte> body = {};
  std::size_t most = 16 << 20;  // bytes of the answer's body
};

struct Response {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool cut = false;  // the body is longer than Request::most
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

class HttpClient {
 public:
  /// `longest_call`: limit of a request with its answer; zero: none while bytes move.
  explicit HttpClient(Service service, Duration longest_call = Duration::zero());
  /// Throws NoAnswer.
  Response send(const Request& request);

 private:
  using Handle = std::unique_ptr<void, void (*)(void*)>;  // a CURL
  Handle take();

  const Service service_;
  const Duration longest_call_;
  std::mutex mutex_;
  std::vector<Handle> idle_;
};

}  // namespace trireme::inline v0::storage::s3
