#include "trireme/storage/s3/client.h"

#include <algorithm>
#include <random>

#include "trireme/base/parse_number.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/storage/s3/digest.h"
#include "trireme/storage/s3/xml.h"

namespace trireme::inline v0::storage::s3 {
namespace {

constexpr std::size_t kMostOfAnError = 64 << 10;
constexpr int kChanged = 412;  // a condition of the request is not met any more
// Larger objects are copied in parts, which takes headers "x-amz-copy-source" and
// "x-amz-copy-source-range". curl 7.88 signs these in the wrong order.
constexpr std::int64_t kMostCopied = std::int64_t{5} << 30;

constexpr int kNotImplemented = 501;

bool may_pass(int status) {
  return (status >= 500 && status != kNotImplemented) || status == 429 || status == 408;
}

Object object_of(Response response) {
  return {.bytes = parse_number<std::int64_t>(response.header("content-length")).value_or(-1),
          .etag = response.header("etag"),
          .modified = response.header("last-modified"),
          .body = std::move(response.body)};
}

// Under KMS, and for objects in parts, an ETag is no MD5 of the bytes.
bool etag_differs(const Response& response, const Md5& digest) {
  const std::string etag = response.header("etag");
  const bool kms = response.header("x-amz-server-side-encryption").starts_with("aws:kms");
  return !kms && is_md5(etag) && etag != etag_of(digest);
}

std::string advice_for(const std::string& code) {
  if (code == "NoSuchBucket") return "Make the bucket first, or correct checkpoint.path.";
  if (code == "RequestTimeTooSkewed") return "Correct this host's clock.";
  if (code == "NotImplemented") return "The service lacks a call that checkpoints need.";
  return "Check the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), "
         "AWS_REGION, and what the bucket's policy allows.";
}

}  // namespace

S3Client::S3Client(Service service, std::string bucket, RetryOptions retry)
    : service_(service),
      bucket_(std::move(bucket)),
      retry_(retry),
      waiter_(RealWaiter::make(Duration::zero())),
      http_(std::move(service), retry.longest_call) {}

std::string S3Client::url(const std::string& key, const std::string& query) const {
  return url_of(service_, bucket_, key) + (query.empty() ? "" : "?" + query);
}

// Half of the delay is random, so that ranks that failed together do not try again together.
void S3Client::pause(int attempt) const {
  static thread_local std::minstd_rand random{std::random_device()()};
  Duration delay = retry_.first_delay;
  for (int i = 1; i < attempt && delay < retry_.longest_delay; ++i) delay *= 2;
  delay = std::min(delay, retry_.longest_delay);
  waiter_->sleep(delay / 2 + Duration(std::uniform_int_distribution<Duration::rep>(
                                 0, delay.count() / 2)(random)));
}

void S3Client::refuse(const Response& response, const std::string& what) const {
  std::string code = text_of(response.body, "Code");
  if (code.empty() && response.status == 403) code = "AccessDenied";  // HEAD has no body
  if (code.empty() && response.status == kNotImplemented) code = "NotImplemented";
  const std::string message = text_of(response.body, "Message");
  throw Refusal(response.status, code,
                "cannot " + what + " in the bucket " + bucket_ + ": the storage answers " +
                    std::to_string(response.status) + (code.empty() ? "" : " " + code) +
                    (message.empty() ? "" : " (" + message + ")"),
                {.operation = "checkpoint", .advice = advice_for(code)});
}

void S3Client::fail(const std::string& what, const std::string& why,
                    const std::string& advice) const {
  throw ResourceError("cannot " + what + " in the bucket " + bucket_ + why,
                      {.operation = "checkpoint", .advice = advice});
}

Response S3Client::call(Request request, const std::string& what) {
  const Md5 digest = md5_of(request.body);
  if (!request.body.empty()) request.headers.push_back("Content-MD5: " + base64(digest));
  std::string reason;
  for (int attempt = 1; attempt <= retry_.attempts; ++attempt) {
    if (attempt > 1) pause(attempt - 1);
    try {
      Response response = http_.send(request);
      if (response.cut && response.status < 300)
        fail(what, ": the answer has more than " + std::to_string(request.most) + " bytes",
             "This service does not do as S3 does with ranges and pages: use another one.");
      const bool put = request.method == "PUT" && !request.body.empty();
      if (response.status < 300 && put && etag_differs(response, digest)) {
        reason = "the stored bytes differ from those that were sent";
        continue;
      }
      if (response.status < 300 || response.status == kNotFound) return response;
      const std::string code = text_of(response.body, "Code");
      if (!may_pass(response.status) && code != "BadDigest" && code != "RequestTimeout")
        refuse(response, what);
      reason = "the storage answers " + std::to_string(response.status) + " " + code;
    } catch (const NoAnswer& error) {
      reason = error.what();
    }
  }
  fail(what,
       " at " + (service_.endpoint.empty() ? "Amazon S3" : service_.endpoint) + " after " +
           std::to_string(retry_.attempts) + " attempts: " + reason,
       "Check the endpoint (TRIREME_S3_ENDPOINT, AWS_ENDPOINT_URL) and the network.");
}

std::string S3Client::put(const std::string& key, std::span<const std::byte> bytes,
                          const Condition& condition) {
  Request request{.method = "PUT", .url = url(key), .body = bytes};
  if (condition.absent) request.headers.push_back("If-None-Match: *");
  if (!condition.etag.empty()) request.headers.push_back("If-Match: " + condition.etag);
  const Response response = call(request, "write " + key);
  if (response.status == kNotFound) refuse(response, "write " + key);
  return response.header("etag");
}

std::optional<Object> S3Client::head(const std::string& key) {
  Response response = call({.method = "HEAD", .url = url(key)}, "look at " + key);
  if (response.status == kNotFound) return std::nullopt;
  Object object = object_of(std::move(response));
  if (object.bytes < 0)
    fail("look at " + key, ": the answer has no size",
         "A proxy may leave the header Content-Length out: reach the service without it.");
  return object;
}

std::optional<Object> S3Client::get(const std::string& key) {
  Response response = call({.url = url(key)}, "read " + key);
  if (response.status == kNotFound && text_of(response.body, "Code") == "NoSuchBucket")
    refuse(response, "read " + key);
  if (response.status == kNotFound) return std::nullopt;
  return object_of(std::move(response));
}

std::string S3Client::get_range(const std::string& key, const std::string& etag, std::int64_t begin,
                                std::int64_t end) {
  const std::string what = "read " + key;
  Request request{
      .url = url(key),
      .headers = {"Range: bytes=" + std::to_string(begin) + "-" + std::to_string(end - 1),
                  "If-Match: " + etag},
      .most = std::max(static_cast<std::size_t>(end - begin), kMostOfAnError)};
  const auto gone = [&]() {
    return CheckpointError(
        key + " in the bucket " + bucket_ + " was removed or replaced while it was read",
        {.operation = "checkpoint", .advice = "Read a newer checkpoint."});
  };
  Response response;
  try {
    response = call(request, what);
  } catch (const Refusal& refusal) {
    if (refusal.status == kChanged) throw gone();
    throw;
  }
  if (response.status == kNotFound && text_of(response.body, "Code") != "NoSuchBucket")
    throw gone();
  if (response.status == kNotFound) refuse(response, what);
  if (static_cast<std::int64_t>(response.body.size()) != end - begin)
    fail(what,
         ": asked for bytes " + std::to_string(begin) + " to " + std::to_string(end) + ", got " +
             std::to_string(response.body.size()),
         "This S3 service ignores the header Range: use another one.");
  return std::move(response.body);
}

void S3Client::remove(const std::string& key) {
  call({.method = "DELETE", .url = url(key)}, "remove " + key);
}

void S3Client::for_each_page(const std::string& what, std::string query, const NextPage& take) {
  for (;;) {
    const Response response = call({.url = url("", query)}, what);
    if (response.status == kNotFound) refuse(response, what);
    std::string next = take(response.body);
    if (text_of(response.body, "IsTruncated") != "true") return;
    if (next.empty() || next == query)  // the page names itself, and the list would never end
      fail(what,
           next.empty() ? ": the storage cut the list off, and names no page after it"
                        : ": the storage returned the same page of the list twice",
           "This S3 service cannot list in pages: use another one.");
    query = std::move(next);
  }
}

std::vector<std::string> S3Client::list(const std::string& prefix) {
  std::vector<std::string> keys;
  const std::string query = "list-type=2&prefix=" + percent_encoded(prefix);
  for_each_page("list " + prefix + "*", query, [&](const std::string& page) -> std::string {
    for (const std::string& one : elements(page, "Contents")) keys.push_back(text_of(one, "Key"));
    const std::string token = text_of(page, "NextContinuationToken");
    if (token.empty()) return {};
    // A signature needs the parameters in this order.
    return "continuation-token=" + percent_encoded(token) + "&" + query;
  });
  return keys;
}

bool S3Client::copy(const std::string& from, const std::string& to) {
  const auto source = head(from);
  if (!source || source->bytes > kMostCopied) return false;
  const Response response = call({.method = "PUT",
                                  .url = url(to),
                                  .headers = {"x-amz-copy-source: /" + bucket_ + "/" +
                                              percent_encoded(from, /*keep_slashes=*/true)}},
                                 "copy " + from);
  if (response.status == kNotFound) return false;
  // The answer begins before the copy is done, so an error may come as a 200.
  if (!text_of(response.body, "Code").empty()) refuse(response, "copy " + from);
  const auto copied = head(to), after = head(from);
  if (!copied || copied->bytes != source->bytes || (after && after->etag != source->etag))
    throw ResourceError("the copy of " + from + " in the bucket " + bucket_ + " differs from it",
                        {.operation = "checkpoint", .advice = "The training tries again."});
  return true;
}

}  // namespace trireme::inline v0::storage::s3
