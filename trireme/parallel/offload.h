// MappedState: optimizer state and master weights in a file that is mapped, instead of memory of
// the process: the operating system writes pages out when it needs theirs, and reads them when the
// update comes by. One file per rank, without a name as soon as it is open, so nothing is left.
//
// The bits do not change. Throws ResourceError where the folder cannot hold the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace parallel {

class MappedState {
 public:
  /// A file in `folder`.
  explicit MappedState(std::string folder);
  ~MappedState();
  MappedState(const MappedState&) = delete;

  /// The tensor's storage, with its content, moves into the file; views of it stay views. This
  /// object outlives its last use.
  void take(const at::Tensor& tensor);
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::string folder_;
  int file_ = -1;
  std::size_t bytes_ = 0;
  struct Mapping {
    void* data;
    std::size_t bytes;
  };
  std::vector<Mapping> mappings_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
