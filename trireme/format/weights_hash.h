// The weights hash: the one number that says whether two trainings ended with the same bits.
//
// One SHA-256 over all weights in ascending byte order of their names; of each weight, every
// integer as 8 bytes little-endian:
//     length of name, name · length of type, type ("F32") · number of dims, each dim · bytes, data
// Lengths come first, so no two different sets of weights give the same stream. `trireme inspect
// RUN --hash` (from a file) and Strategy::weights_hash() (from memory) both call this. Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/dtype.h"

namespace trireme {
inline namespace v0 {
namespace format {

/// A tensor as raw memory: contiguous, row-major, little-endian. Does not own its bytes.
struct RawTensor {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// 64 hexadecimal digits. The order of `weights` does not matter; two weights of one name, or a
/// byte count that is not the shape's, is a CheckFailure.
std::string weights_hash(std::vector<RawTensor> weights);

}  // namespace format
}  // namespace v0
}  // namespace trireme
