// MD5 as S3 uses it: Content-MD5 in base 64, ETags in hexadecimal digits. It finds transfer errors;
// a checkpoint's own hashes (XXH3) are in its manifest.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace trireme::inline v0::storage::s3 {

using Md5 = std::array<unsigned char, 16>;

Md5 md5_of(std::span<const std::byte> bytes);
std::string base64(std::span<const unsigned char> bytes);
/// In quotes, as ETags are.
std::string etag_of(const Md5& digest);
/// The ETag of an object that was uploaded in parts with these ETags; empty if one is no MD5.
std::string etag_of_parts(const std::vector<std::string>& etags);
/// Whether `etag` may be an MD5.
bool is_md5(const std::string& etag);

}  // namespace trireme::inline v0::storage::s3
