#include "trireme/format/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <span>

#include "trireme/base/check.h"
#include "trireme/base/hex.h"

namespace trireme::inline v0::format {

struct Sha256::Context {
  EVP_MD_CTX* handle = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(handle); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  TRIREME_CHECK(EVP_DigestInit_ex(context_->handle, EVP_sha256(), nullptr) == 1);
}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  TRIREME_CHECK(EVP_DigestUpdate(context_->handle, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  unsigned int length = 0;
  TRIREME_CHECK(EVP_DigestFinal_ex(context_->handle, digest.data(), &length) == 1);
  TRIREME_CHECK(length == digest.size());
  return to_hex(std::as_bytes(std::span(digest)));
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

}  // namespace trireme::inline v0::format
