// The definition of a model's hash: SHA-256 over all its tensors (name, type, shape, bytes, in name
// order). `trireme inspect RUN --hash`, Strategy::weights_hash and the numerics tests share it.
// Pure functions; thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/base/sha256.h"

namespace trireme::inline v0 {

/// A view of one tensor: `bytes` is its row-major content.
struct HashedTensor {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Hashes for each tensor: name, 0, safetensors type name, 0, number of dims and each dim (int64,
/// little endian), number of bytes (int64), bytes. 64 hex digits. Independent of the order of
/// `tensors`.
std::string weights_hash(std::vector<HashedTensor> tensors);

/// The same, one tensor at a time, for tensors that do not fit in memory together. Call add() in
/// ascending name order (CheckFailure otherwise).
class WeightsHash {
 public:
  void add(const HashedTensor& tensor);
  std::string finish() { return hash_.hex(); }

 private:
  Sha256 hash_;
  std::string last_;  // the name of the last tensor
};

/// The first eight bytes of the hash of one tensor; used to compare copies between ranks.
std::uint64_t tensor_hash(const HashedTensor& tensor);

}  // namespace trireme::inline v0
