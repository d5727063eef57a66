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

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/memory/activation_store.h"

namespace trireme::inline v0::memory {

class ActivationFile final : public ActivationStore {
 public:
  /// A file in `folder`.
  explicit ActivationFile(const std::string& folder);
  /// Graphs that still need saved tensors keep the file alive.
  ~ActivationFile() override;
  ActivationFile(const ActivationFile&) = delete;

  void begin_pass() override;
  /// Waits until the tensors of all blocks but the last one have been written.
  void turn() override;
  /// Size of the file.
  std::int64_t bytes() const override;
  /// Bytes in memory: saved and not yet written; fetched (or about to be) and still needed.
  std::int64_t bytes_waiting() const;
  std::int64_t bytes_fetched() const;

 protected:
  std::unique_ptr<TensorKeeper> begin_block() override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme::inline v0::memory
