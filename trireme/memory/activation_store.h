// ActivationStore: keeps the tensors that autograd saves for a model's blocks away from the memory
// that blocks compute in: in a mapped file (activation_file.h), or, for a device, in pinned memory of
// the host (host_activations.h). The bytes that come back are the same, so no bit changes.
//
// Memory holds the tensors of at most two blocks at a time. Blocks of one store run forward one at a
// time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/memory/saved_tensors.h"

namespace trireme::inline v0::memory {

class ActivationStore {
 public:
  virtual ~ActivationStore() = default;

  /// Runs forward(input) as a block. Tensors that it saves for backward go to the store, except
  /// parameters and tensors below 16 KiB. Not useful for the last block of a model, whose backward
  /// comes at once.
  at::Tensor run(const std::function<at::Tensor(const at::Tensor&)>& forward,
                 const at::Tensor& input);
  /// The next block is the first of a model, so its backward fetches no block before it.
  virtual void begin_pass() = 0;
  /// Call before a block whose backward comes at once, such as a model's last. The tensors of the
  /// block before it stay in memory; those of all earlier blocks leave it.
  virtual void turn() = 0;
  /// The most bytes that were in the store.
  virtual std::int64_t bytes() const = 0;

  /// Like run(), for everything that this thread computes while the object lives. Without gradient
  /// mode nothing is stored.
  class Block {
   public:
    explicit Block(ActivationStore& store);
    Block(const Block&) = delete;

   private:
    std::unique_ptr<TensorKeeper> keeper_;
    std::optional<SavedTensorsScope> scope_;
  };

 protected:
  /// Takes the tensors of the next block. All blocks but the last one leave memory before it.
  virtual std::unique_ptr<TensorKeeper> begin_block() = 0;
};

/// For blocks on `device`: a file in the folder `place` for the CPU; for others the host's memory,
/// and `place` is kOnHost (offload_folder.h). One for each thread that runs blocks.
std::shared_ptr<ActivationStore> make_activation_store(const std::string& place, at::Device device);

}  // namespace trireme::inline v0::memory
