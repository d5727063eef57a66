#include "trireme/format/weights_hash.h"

#include <algorithm>
#include <array>

#include "trireme/base/check.h"
#include "trireme/format/sha256.h"

namespace trireme {
inline namespace v0 {
namespace format {
namespace {

void add(Sha256& hash, std::uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(value >> (8 * i));
  hash.update(bytes);
}

void add(Sha256& hash, std::string_view text) {
  add(hash, static_cast<std::uint64_t>(text.size()));
  hash.update(text);
}

}  // namespace

std::string weights_hash(std::vector<RawTensor> weights) {
  std::sort(weights.begin(), weights.end(),
            [](const RawTensor& a, const RawTensor& b) { return a.name < b.name; });
  Sha256 hash;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const RawTensor& weight = weights[i];
    if (i > 0) TRIREME_CHECK(weights[i - 1].name != weight.name);
    std::uint64_t bytes = size_of(weight.dtype);
    for (const std::int64_t dim : weight.shape) bytes *= static_cast<std::uint64_t>(dim);
    TRIREME_CHECK(weight.bytes.size() == bytes);
    add(hash, weight.name);
    add(hash, name_of(weight.dtype));
    add(hash, static_cast<std::uint64_t>(weight.shape.size()));
    for (const std::int64_t dim : weight.shape) add(hash, static_cast<std::uint64_t>(dim));
    add(hash, bytes);
    hash.update(weight.bytes);
  }
  return hash.hex();
}

}  // namespace format
}  // namespace v0
}  // namespace trireme
