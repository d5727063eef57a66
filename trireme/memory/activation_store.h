// ActivationStore: keeps the tensors that autograd saves for a model's blocks away from the memory
// that blocks compute in: in a mapped file (ActivationFile), or, for a device, in pinned memory of
// the host. The bytes that come back are the same, so no bit changes.
//
// Memory holds the tensors of at most two blocks at a time. A store's blocks run one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trireme/base/clock.h"

namespace trireme::inline v0::memory {

class SavedTensorsScope;
class TensorKeeper;

class ActivationStore {
 public:
  virtual ~ActivationStore() = default;

  /// Runs forward(input) as a block. Tensors that it saves for backward go to the store, except
  /// parameters and tensors below 16 KiB. Not useful for a model's last block: backward follows.
  at::Tensor run(const std::function<at::Tensor(const at::Tensor&)>& forward,
                 const at::Tensor& input);
  /// The next block is the first of a model, so its backward fetches no block before it.
  virtual void begin_pass() = 0;
  /// Call before a block whose backward follows immediately, such as a model's last. The tensors of
  /// the block before it stay in memory; those of all earlier blocks leave it.
  virtual void turn() = 0;
  /// The most bytes that were in the store.
  virtual std::int64_t bytes() const = 0;

  /// Like run(), for everything that this thread computes while the object lives. Without gradient
  /// mode nothing is stored.
  class Block {
   public:
    explicit Block(ActivationStore& store);
    ~Block();
    Block(const Block&) = delete;

   private:
    std::unique_ptr<TensorKeeper> keeper_;
    std::unique_ptr<SavedTensorsScope> scope_;
  };

 protected:
  /// Takes the tensors of the next block. All blocks but the last one leave memory before it.
  virtual std::unique_ptr<TensorKeeper> begin_block() = 0;
};

/// ActivationFile: keeps the tensors in a mapped file. A background thread writes a block's tensors
/// while the next block computes, and fetches them while backward still runs the block after (the
/// order of Rhu et al. 2016, "vDNN", arXiv:1602.08124, with a file instead of host memory).
///
///   forward  | block 0 | block 1 | block 2 |      backward | block 2 | block 1 | block 0 |
///   thread             | write 0 | write 1 |      thread   | fetch 1 | fetch 0 |
///
/// Besides memory for two blocks it uses the system's page cache. The file is unlinked once it is
/// open, so nothing is left behind; it grows to the most that is saved at a time, and its space is
/// reused by tensors of the same size or up to an eighth less, on a full disk by any that fit. Any
/// thread may read what another saved.
/// Throws ResourceError if the folder cannot hold the file, or if nothing is written for `patience`
/// while a block waits.
class ActivationFile final : public ActivationStore {
 public:
  /// A file in `folder`.
  explicit ActivationFile(const std::string& folder, Duration patience = std::chrono::minutes(10));
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

/// For blocks on the CPU: a file in the folder `place`. For other devices: the host's memory, and
/// `place` is kOnHost (offload_folder.h). Each thread that runs blocks needs its own store.
std::shared_ptr<ActivationStore> make_activation_store(const std::string& place, at::Device device);

}  // namespace trireme::inline v0::memory
