// SavedTensors: the tensors of a checkpoint, whose elements may lie in several files.
//
// A file holds whole tensors under their names, and slices of others: the elements that one rank
// wrote, as one row under the tensor's name. "slices" of the file's "__metadata__" says which they
// are:
//
//     {"w": {"shape": [4, 6], "runs": [[2, 2, 6, 4]]}}      begin, length, stride, count:
//                                                           elements 2 3, 8 9, 14 15, 20 21
//
// Reads only the chunks of the files that hold what is wanted, and verifies them. Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/storage/checkpoint_reader.h"

namespace trireme::inline v0::storage {

/// Elements [begin + i * stride, begin + i * stride + length) of a tensor, for i < count.
struct Run {
  std::int64_t begin = 0, length = 0, stride = 0, count = 1;
  std::int64_t elements() const noexcept { return length * count; }
  /// Takes [from, to) as one more row of the run; false, without effect, if it does not fit.
  bool take(std::int64_t from, std::int64_t to) noexcept;
};

/// The elements of a tensor that a file holds, in this order.
struct Slices {
  std::vector<std::int64_t> shape;  // of the tensor
  std::vector<Run> runs;
  /// Adds [begin, end), which comes after all before.
  void add(std::int64_t begin, std::int64_t end);
};

/// The metadata of a file with these slices, by tensor.
std::map<std::string, std::string> metadata_of(const std::map<std::string, Slices>& slices);

class SavedTensors {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape;
    std::int64_t elements() const noexcept;
    std::size_t bytes() const noexcept;
  };
  /// Elements [begin, begin + n) of a tensor for the n elements that `to` has room for.
  struct Wanted {
    const Tensor* tensor;
    std::int64_t begin = 0;
    std::span<std::byte> to;
  };

  /// Reads the headers of the files. Throws CheckpointError, as read() does: it names the damage
  /// and an older step that is intact.
  SavedTensors(const CheckpointReader& folder, const Manifest& manifest);
  ~SavedTensors();

  /// Those of kModelFile or kStateFile, and of the files that other ranks wrote beside it, in the
  /// order of sort_for_file(). They live as long as this object.
  std::vector<const Tensor*> tensors(const std::string& file) const;
  /// Null if there is none.
  const Tensor* find(const std::string& file, const std::string& name) const;
  /// The number of an element's file, and the byte there. Reading in this order is fastest.
  std::pair<std::size_t, std::int64_t> place_of(const Tensor& tensor, std::int64_t element) const;
  void read(const std::vector<Wanted>& wanted);
  /// All bytes of a tensor.
  std::vector<std::byte> read(const Tensor& tensor);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::inline v0::storage
