// S3Client: the calls on one bucket, each tried again until it has a final answer.
//
// Calls without an answer, or with 5xx (but 501), 429 or 408, are tried again after a growing,
// jittered delay. Bytes are checked by their MD5: the service compares Content-MD5, and this side
// the ETag of the answer (under KMS encryption an ETag is no MD5). Thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/storage/s3/http.h"

namespace trireme::inline v0::storage::s3 {

inline constexpr int kNotFound = 404;

struct RetryOptions {
  int attempts = 7;  // together about 20 s of delays
  Duration first_delay = std::chrono::milliseconds(250);
  Duration longest_delay = std::chrono::seconds(8);
  Duration longest_call = Duration::zero();  // limit of an attempt; zero: none while bytes move
};

/// The service's final refusal. `code` is the service's word, such as "AccessDenied".
class Refusal : public ResourceError {
 public:
  Refusal(int status, std::string code, std::string message, ErrorContext context)
      : ResourceError(std::move(message), std::move(context)),
        status(status),
        code(std::move(code)) {}
  int status;
  std::string code;
};

struct Object {
  std::int64_t bytes = 0;
  std::string etag, modified, body;
};

struct Upload {
  std::string key, id;
  bool operator==(const Upload&) const = default;
};

/// Under which put() writes; neither member set: always.
struct Condition {
  bool absent = false;  // there is no such object
  std::string etag;     // the object has this ETag
};

class S3Client {
 public:
  S3Client(Service service, std::string bucket, RetryOptions retry = {});
  /// The same bucket with other retries.
  std::shared_ptr<S3Client> with(RetryOptions retry) const {
    return std::make_shared<S3Client>(service_, bucket_, retry);
  }

  /// Throws Refusal with status 412 if the condition does not hold. Returns the ETag.
  std::string put(const std::string& key, std::span<const std::byte> bytes,
                  const Condition& condition = {});
  /// The object without its body; nullopt if there is none.
  std::optional<Object> head(const std::string& key);
  /// A small object; nullopt if there is none.
  std::optional<Object> get(const std::string& key);
  /// Bytes [begin, end) of the version `etag`.
  std::string get_range(const std::string& key, const std::string& etag, std::int64_t begin,
                        std::int64_t end);
  void remove(const std::string& key);
  /// All keys that begin with `prefix`.
  std::vector<std::string> list(const std::string& prefix);
  /// Copies within the service. False if there is no object `from`, or it is larger than the
  /// service copies at once. Throws ResourceError if the copy has another size or `from` was
  /// replaced meanwhile (ETags of equal objects may differ).
  bool copy(const std::string& from, const std::string& to);

  /// A file in parts: begin, parts numbered from 1, complete. Until then it does not exist.
  Upload begin_upload(const std::string& key);
  std::string put_part(const Upload& upload, int number, std::span<const std::byte> bytes);
  void complete_upload(const Upload& upload, const std::vector<std::string>& etags);
  /// False if the upload was given up before, or is complete.
  bool abort_upload(const Upload& upload);
  /// Whether the upload is neither complete nor given up.
  bool is_open(const Upload& upload);
  std::vector<Upload> open_uploads(const std::string& prefix);

  const std::string& bucket() const noexcept { return bucket_; }
  const std::shared_ptr<Waiter>& waiter() const noexcept { return waiter_; }

 private:
  Response call(Request request, const std::string& what);
  std::string url(const std::string& key, const std::string& query = "") const;
  void pause(int attempt) const;
  [[noreturn]] void refuse(const Response& response, const std::string& what) const;
  [[noreturn]] void fail(const std::string& what, const std::string& why,
                         const std::string& advice) const;
  // Takes a page of a list; returns the query of the page after it, or an empty text if it names none.
  using NextPage = std::function<std::string(const std::string& page)>;
  // Asks for the page of `query`, and for all after it.
  void for_each_page(const std::string& what, std::string query, const NextPage& take);

  const Service service_;
  const std::string bucket_;
  const RetryOptions retry_;
  const std::shared_ptr<Waiter> waiter_;
  HttpClient http_;
};

}  // namespace trireme::inline v0::storage::s3
