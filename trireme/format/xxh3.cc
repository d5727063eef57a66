#include "trireme/format/xxh3.h"

#define XXH_INLINE_ALL  // the header has all code: no library to link
#include <xxhash.h>

#include "trireme/base/hex.h"

namespace trireme::inline v0::format {
namespace {

std::string digits(const XXH128_hash_t& hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  return to_hex(std::as_bytes(std::span(canonical.digest)));
}

}  // namespace

struct Xxh3::State {
  XXH3_state_t xxh;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) { reset(); }
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;
Xxh3::~Xxh3() = default;

void Xxh3::reset() { XXH3_128bits_reset(&state_->xxh); }

void Xxh3::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::string Xxh3::hex() const { return digits(XXH3_128bits_digest(&state_->xxh)); }

std::string xxh3_hex(std::span<const std::byte> bytes) {
  return digits(XXH3_128bits(bytes.data(), bytes.size()));
}

}  // namespace trireme::inline v0::format
