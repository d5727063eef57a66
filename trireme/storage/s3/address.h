// The names of an S3 storage: buckets, keys, URLs, and its service in the environment. Values.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trireme::inline v0::storage::s3 {

/// "s3://bucket/prefix". The prefix has no slash at its ends and may be empty.
struct Address {
  std::string bucket, prefix;
  std::string text() const;  // "s3://bucket/prefix"
};

/// Throws ConfigError if `text` is no such address.
Address parse_address(const std::string& text);

struct Service {
  std::string endpoint;  // "https://host[:port]"; empty: Amazon's for the region
  std::string region = "us-east-1";
  std::string access_key, secret_key, session_token;
};

/// Reads TRIREME_S3_ENDPOINT or AWS_ENDPOINT_URL, AWS_REGION or AWS_DEFAULT_REGION,
/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN. Throws ConfigError if there are no
/// credentials. `get` has getenv's signature.
Service service_of(const std::function<const char*(const char*)>& get);

/// `text` with "%XX" for all bytes but letters, digits and "-_.~", as signatures need it.
std::string percent_encoded(std::string_view text, bool keep_slashes = false);
/// The URL of an object, or of the bucket for an empty key. Amazon's own buckets have host names;
/// other endpoints have the bucket in the path.
std::string url_of(const Service& service, const std::string& bucket, const std::string& key);

}  // namespace trireme::inline v0::storage::s3
