#include "trireme/base/sha256.h"

#include <openssl/evp.h>

#include "trireme/base/check.h"
#include "trireme/base/hex.h"

namespace trireme::inline v0 {

void Sha256::Free::operator()(evp_md_ctx_st* context) const noexcept { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  TRIREME_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  TRIREME_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::array<std::byte, 32> Sha256::digest() {
  std::array<std::byte, 32> digest{};
  unsigned int length = 0;
  TRIREME_CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                                   &length) == 1);
  TRIREME_CHECK(length == digest.size());
  return digest;
}

std::string Sha256::hex() { return to_hex(digest()); }

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

}  // namespace trireme::inline v0
