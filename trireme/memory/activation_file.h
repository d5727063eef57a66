// ActivationFile: keeps the tensors that autograd saves for a model's blocks in a mapped file. A
// background thread writes a block's tensors while the next block computes, and fetches them while
// backward still runs the block after (the order of Rhu et al. 2016, "vDNN", arXiv:1602.08124, with
// a file instead of host memory). The bytes that come back are the same, so no bit changes.
//
//   forward  | block 0 | block 1 | block 2 |      backward | block 2 | block 1 | block 0 |
//   thread             | write 0 | write 1 |      thread   | fetch 1 | fetch 0 |
//
// Memory holds the tensors of at most two blocks at a time, besides the system's page cache. The
// file is unlinked as soon as it is open, so nothing is left behind; it grows to the most that is
// saved at a time, and its space is reused. Any thread may read what another saved; blocks of one
// file run forward one at a time. Throws ResourceError if the folder cannot hold the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace trireme::inline v0::memory {

class ActivationFile {
 public:
  /// A file in `folder`.
  explicit ActivationFile(const std::string& folder);
  /// Graphs that still need saved tensors keep the file alive.
  ~ActivationFile();
  ActivationFile(const ActivationFile&) = delete;

  /// Runs forward(input) as a block. Tensors that it saves for backward go to the file, except
  /// parameters and tensors below 16 KiB. Not useful for the last block of a model, whose backward
  /// comes at once.
  at::Tensor run(const std::function<at::Tensor(const at::Tensor&)>& forward,
                 const at::Tensor& input);
  /// The next block is the first of a model, so its backward fetches no block before it.
  void begin_pass();
  /// Call before a block whose backward comes at once, such as a model's last. The tensors of the
  /// block before it stay in memory; waits until those of all earlier blocks have been written.
  void turn();

  /// Like run(), for everything that this thread computes while the object lives. The constructor
  /// waits until all blocks except the last one have been written.
  class Block {
   public:
    explicit Block(ActivationFile& file);
    ~Block();
    Block(const Block&) = delete;

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  /// Size of the file.
  std::int64_t bytes() const;
  /// Bytes in memory: saved and not yet written; fetched (or about to be) and still needed.
  std::int64_t bytes_waiting() const;
  std::int64_t bytes_fetched() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme::inline v0::memory
