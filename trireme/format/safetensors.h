// safetensors: named tensors in one file, without code or objects in it.
//
//   8 bytes: length n of the header, little-endian; n bytes: JSON, padded with spaces; data
//   {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"k": "v"}}
//
// The format of https://github.com/huggingface/safetensors. Reading is strict: it refuses every
// file that Python's safetensors refuses, and allocates nothing that is not bounded by the file's
// length. Damage throws CheckpointError naming file and byte. Immutable after opening, thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/weights_hash.h"
#include "trireme/format/mapped_file.h"

namespace trireme::inline v0::format {

/// A tensor as raw memory: name, dtype, shape, row-major little-endian bytes. Does not own them.
using TensorView = HashedTensor;

struct Safetensors {
  std::vector<TensorView> tensors;              // in the order of their bytes
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

/// The length of a file's header, from the bytes before it. Any number in another kind of file.
inline constexpr std::size_t kLengthBytes = 8;
std::uint64_t header_length(std::span<const std::byte, kLengthBytes> first) noexcept;

/// Parses `file`; the views point into it. `title` names it in errors. The dtype of every tensor
/// must be one of base/buffer.h.
Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& title);

/// The location of a tensor in a file: bytes [begin, end).
struct PlacedTensor {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;
};
struct SafetensorsIndex {
  std::vector<PlacedTensor> tensors;            // in the order of their bytes
  std::map<std::string, std::string> metadata;  // "__metadata__"
};
/// Reads the header alone, with the same checks. `read(at, to)` fills `to` with the bytes from `at`
/// on of a file of `file_bytes` bytes.
using RangeReader = std::function<void(std::uint64_t at, std::span<std::byte> to)>;
SafetensorsIndex read_safetensors_index(std::uint64_t file_bytes, const RangeReader& read,
                                        const std::string& title);

/// Writes a whole file to `sink`, piece by piece. Larger element types come first, so that every
/// tensor is aligned; within a type, tensors are in name order, so equal tensors give equal files.
/// Names must be unique and differ from "__metadata__" (CheckFailure). ConfigError if names and
/// shapes take more than 100 MB, which no reader accepts.
void write_safetensors(std::vector<TensorView> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(std::span<const std::byte>)>& sink);

/// Sorts tensors into the order of their bytes in a file.
void sort_for_file(std::vector<TensorView>& tensors);
/// Writes tensors whose bytes are not in memory. `content(tensor, sink)` is called for each tensor
/// in the order of sort_for_file(); it must give the sink exactly the bytes that dtype and shape
/// require (CheckFailure). The views' own bytes are not read.
using ByteSink = std::function<void(std::span<const std::byte>)>;
void write_safetensors(std::vector<TensorView> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(const TensorView&, const ByteSink&)>& content,
                       const ByteSink& sink);

/// A mapped file; the views stay valid as long as it lives.
class SafetensorsFile {
 public:
  /// Throws ConfigError if `path` cannot be read, CheckpointError if it is damaged.
  explicit SafetensorsFile(const std::string& path) : SafetensorsFile(MappedFile(path)) {}
  explicit SafetensorsFile(MappedFile file);

  const std::vector<TensorView>& tensors() const noexcept { return content_.tensors; }
  const std::map<std::string, std::string>& metadata() const noexcept { return content_.metadata; }
  /// Null if there is no tensor of that name.
  const TensorView* find(std::string_view name) const noexcept;
  const std::string& path() const noexcept { return file_.path(); }

 private:
  MappedFile file_;
  Safetensors content_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace trireme::inline v0::format
