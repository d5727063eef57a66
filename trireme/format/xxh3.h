// XXH3 (128 bits, seed 0) of bytes that arrive in pieces: finds damage at the speed of memory. It
// does not protect against a person who makes two files of one hash; base/sha256.h does.
//
// A value that owns its state; not thread safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace trireme::inline v0::format {

class Xxh3 {
 public:
  Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;
  ~Xxh3();

  void update(std::span<const std::byte> bytes);
  /// 32 lower-case hexadecimal digits of everything so far, as `xxh128sum` prints them.
  std::string hex() const;
  /// Forgets all bytes so far.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The digest of one piece, as hexadecimal digits.
std::string xxh3_hex(std::span<const std::byte> bytes);

}  // namespace trireme::inline v0::format
