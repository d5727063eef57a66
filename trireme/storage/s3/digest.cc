#include "trireme/storage/s3/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "trireme/base/check.h"
#include "trireme/base/hex.h"

namespace trireme::inline v0::storage::s3 {

constexpr std::size_t kQuotedMd5 = 34;

Md5 md5_of(std::span<const std::byte> bytes) {
  Md5 digest{};
  TRIREME_CHECK(
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_md5(), nullptr) == 1);
  return digest;
}

std::string base64(std::span<const unsigned char> bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::string etag_of(const Md5& digest) {
  return '"' + to_hex(std::as_bytes(std::span(digest))) + '"';
}

bool is_md5(const std::string& etag) {
  return etag.size() == kQuotedMd5 && etag.front() == '"' && etag.back() == '"' &&
         std::all_of(etag.begin() + 1, etag.end() - 1,
                     [](unsigned char c) { return std::isxdigit(c) != 0; });
}

std::string etag_of_parts(const std::vector<std::string>& etags) {
  std::vector<unsigned char> digests;
  for (const std::string& etag : etags) {
    if (!is_md5(etag)) return {};
    for (std::size_t i = 1; i + 1 < etag.size(); i += 2)
      std::from_chars(&etag[i], &etag[i] + 2, digests.emplace_back(), /*base=*/16);
  }
  std::string etag = etag_of(md5_of(std::as_bytes(std::span(digests))));
  etag.insert(etag.size() - 1, "-" + std::to_string(etags.size()));
  return etag;
}

}  // namespace trireme::inline v0::storage::s3
