// SHA-256 (FIPS 180-4) of bytes that arrive in pieces.
//
// A value that owns its state; not thread safe. Uses OpenSSL, so the processor's SHA instructions.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme::inline v0::format {

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  /// 64 lower-case hexadecimal digits of everything so far. Call it once, as the last call.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// The digest of one piece, as hexadecimal digits.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace trireme::inline v0::format
