// SHA-256 (FIPS 180-4) of bytes that arrive in pieces.
//
// A value that owns its state; not thread safe. OpenSSL uses the processor's SHA instructions.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace trireme::inline v0 {

class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  /// The hash of all bytes so far. Call digest() or hex() once, as the last call.
  std::array<std::byte, 32> digest();
  /// The same as 64 lower-case hexadecimal digits.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const noexcept;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// The digest of one piece, as hexadecimal digits.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace trireme::inline v0
