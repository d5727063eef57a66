// Random numbers of an emulated device: LibTorch's CPU generator, so that a device gives the
// numbers that the CPU gives with the same seed.
//
// Operations that draw numbers run in the order in which they were launched, on any streams. On
// CUDA the effect is the same: each operation gets its part of the sequence when it is launched.
#pragma once

#include <ATen/core/Generator.h>

#include <vector>

#include "trireme/testing/emulated_device/runtime.h"

namespace trireme::inline v0::testing {

class EmulatedGenerator final : public c10::GeneratorImpl {
 public:
  explicit EmulatedGenerator(int device);

  void set_current_seed(std::uint64_t seed) override;
  void set_offset(std::uint64_t offset) override;
  std::uint64_t get_offset() const override;
  std::uint64_t current_seed() const override;
  std::uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  /// The generator that operations draw from. For the executor, and for others after settle().
  const at::Generator& cpu() const { return cpu_; }
  /// Gives `work` to `stream`, behind all work that already draws from this generator.
  StreamPoint launch(StreamIndex stream, Launch work);

 private:
  EmulatedGenerator* clone_impl() const override;
  /// Waits for the operations that draw from it.
  void settle() const;

  at::Generator cpu_;
  mutable std::mutex launch_mutex_;
  StreamPoint last_;  // guarded by launch_mutex_
};

/// The default generator of a device; -1 is the current one.
const at::Generator& default_generator(int device);
EmulatedGenerator& emulated_generator(const at::Generator& generator);

}  // namespace trireme::inline v0::testing
