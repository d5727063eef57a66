// ActivationFile: what autograd saves of a model's blocks, in a mapped file instead of in memory. A
// thread of its own writes a block's tensors while the next block computes, and brings them back
// while backward is still at the block after (the order of Rhu et al. 2016, "vDNN",
// arXiv:1602.08124, with a file in the place of another processor's memory). Same bytes back: no
// bit changes.
//
//   forward    | block 0 | block 1 | block 2 |            backward    | block 2 | block 1 | block 0
//   | thread               | write 0 | write 1 | ...        thread      | fetch 1 | fetch 0 |
//
// In memory are at most two blocks' at a time. The operating system writes pages out when it needs
// theirs. One file, without a name as soon as it is open, so nothing is left; it grows to what is
// saved at a time, and is used again. Any thread may read back what another saved; blocks of one
// file run forward one at a time. Throws ResourceError where the folder cannot hold the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace trireme {
inline namespace v0 {
namespace memory {

class ActivationFile {
 public:
  /// A file in `folder`.
  explicit ActivationFile(const std::string& folder);
  /// What graphs still need of it lives on with them.
  ~ActivationFile();
  ActivationFile(const ActivationFile&) = delete;

  /// forward(input): a block. What it saves for backward goes to the file, but for parameters and
  /// tensors below 16 KiB. The last block of a model is better run without: its backward comes at
  /// once.
  at::Tensor run(const std::function<at::Tensor(const at::Tensor&)>& forward,
                 const at::Tensor& input);
  /// The next block is the first of a model: nothing is fetched ahead of it.
  void begin_pass();
  /// What runs next runs back at once, as a model's last block does: what the block before it saved
  /// stays in memory, and all before that is written first.
  void turn();

  /// The same as run() for whatever this thread computes while it lives. First waits until all but
  /// the block before has been written.
  class Block {
   public:
    explicit Block(ActivationFile& file);
    ~Block();
    Block(const Block&) = delete;

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  /// Of the file.
  std::int64_t bytes() const;
  /// In memory: saved and not written; and fetched (or about to be) and still needed.
  std::int64_t bytes_waiting() const;
  std::int64_t bytes_fetched() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace memory
}  // namespace v0
}  // namespace trireme
