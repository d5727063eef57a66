#include "trireme/storage/s3/address.h"

#include <algorithm>
#include <cctype>

#include "trireme/base/refuse.h"

namespace trireme::inline v0::storage::s3 {
namespace {

constexpr std::string_view kScheme = "s3://";

// The rules of Amazon's general purpose buckets.
bool is_bucket(std::string_view name) {
  const auto fits = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  return name.size() >= 3 && name.size() <= 63 && std::all_of(name.begin(), name.end(), fits) &&
         std::isalnum(static_cast<unsigned char>(name.front())) != 0 &&
         std::isalnum(static_cast<unsigned char>(name.back())) != 0;
}

std::string without_end_slashes(std::string text) {
  while (!text.empty() && text.back() == '/') text.pop_back();
  return text;
}

}  // namespace

std::string Address::text() const {
  return std::string(kScheme) + bucket + (prefix.empty() ? "" : "/" + prefix);
}

Address parse_address(const std::string& text) {
  const std::string advice = "Write s3://BUCKET/PREFIX, such as s3://models/gpt-nano.";
  if (!text.starts_with(kScheme)) refuse("checkpoint.path", text + " is not an S3 address", advice);
  const std::string rest = without_end_slashes(text.substr(kScheme.size()));
  const auto slash = rest.find('/');
  Address address{rest.substr(0, slash), slash == std::string::npos ? "" : rest.substr(slash + 1)};
  if (!is_bucket(address.bucket))
    refuse("checkpoint.path", text + ": \"" + address.bucket + "\" is not the name of a bucket",
           advice);
  if (address.prefix.starts_with("/") || address.prefix.find("//") != std::string::npos ||
      ("/" + address.prefix + "/").find("/../") != std::string::npos ||
      ("/" + address.prefix + "/").find("/./") != std::string::npos)
    refuse("checkpoint.path", text + ": the prefix has an empty part, \".\" or \"..\"", advice);
  return address;
}

Service service_of(const std::function<const char*(const char*)>& get) {
  const auto first = [&](std::initializer_list<const char*> names, std::string fallback) {
    for (const char* name : names)
      if (const char* value = get(name); value != nullptr && *value != '\0')
        return std::string(value);
    return fallback;
  };
  Service service{
      .endpoint = without_end_slashes(first({"TRIREME_S3_ENDPOINT", "AWS_ENDPOINT_URL"}, "")),
      .region = first({"AWS_REGION", "AWS_DEFAULT_REGION"}, "us-east-1"),
      .access_key = first({"AWS_ACCESS_KEY_ID"}, ""),
      .secret_key = first({"AWS_SECRET_ACCESS_KEY"}, ""),
      .session_token = first({"AWS_SESSION_TOKEN"}, "")};
  if (service.access_key.empty() || service.secret_key.empty())
    refuse("checkpoint.path",
           "s3:// needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
           "Set both on all hosts; a temporary key also needs AWS_SESSION_TOKEN.");
  if (!service.endpoint.empty() && !service.endpoint.starts_with("http://") &&
      !service.endpoint.starts_with("https://"))
    refuse("checkpoint.path", "the S3 endpoint " + service.endpoint + " is not a URL",
           "Set TRIREME_S3_ENDPOINT to one such as http://127.0.0.1:9000.");
  return service;
}

std::string percent_encoded(std::string_view text, bool keep_slashes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 128 && std::isalnum(byte) != 0) || c == '-' || c == '_' || c == '.' || c == '~' ||
        (keep_slashes && c == '/'))
      encoded += c;
    else
      encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return encoded;
}

std::string url_of(const Service& service, const std::string& bucket, const std::string& key) {
  const std::string path = "/" + percent_encoded(key, /*keep_slashes=*/true);
  if (!service.endpoint.empty()) return service.endpoint + "/" + bucket + path;
  // A certificate for *.s3.REGION.amazonaws.com covers no name with more dots.
  if (bucket.find('.') != std::string::npos)
    return "https://s3." + service.region + ".amazonaws.com/" + bucket + path;
  return "https://" + bucket + ".s3." + service.region + ".amazonaws.com" + path;
}

}  // namespace trireme::inline v0::storage::s3
