// MappedState: keeps optimizer state and master weights in a mapped file instead of process memory.
// The operating system writes pages out when memory is short, and reads them back when an update
// needs them. One file per rank, unlinked as soon as it is open, so no file is left behind.
//
// Changes no bit of the values. Throws ResourceError if the folder cannot hold the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

namespace trireme::inline v0::parallel {

class MappedState {
 public:
  /// Creates the file in `folder`.
  explicit MappedState(std::string folder);
  ~MappedState();
  MappedState(const MappedState&) = delete;

  /// Moves the tensor's storage, with its content, into the file; views of it stay views. This
  /// object must outlive the storage's last use.
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

}  // namespace trireme::inline v0::parallel
