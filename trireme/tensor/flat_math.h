// FlatMath: the arithmetic of a step on flat memory: leaves of the tree sum, norms, copies. On the
// host kernel/ computes; on a device GpuKernels or LibTorch's operations do. Leaves are added in
// the same order everywhere. flat_math() chooses.
//
// All addresses of a call lie on the FlatMath's device. Work goes to the device's current stream;
// only methods that return numbers wait for it. Stateless, thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::tensor {

/// Whether all results were finite. On a device the answer is still being computed: `later` is then
/// a bool there, true if some result was not finite.
struct Finite {
  bool now = true;
  at::Tensor later = {};
};

struct FlatRange {
  const void* data = nullptr;
  DType dtype = DType::F32;  // F32 or F64
  std::size_t count = 0;
};

class FlatMath {
 public:
  virtual ~FlatMath() = default;
  /// kernel::add_leaf().
  virtual Finite add_leaf(const void* gradient, DType gradient_type, double weight,
                          std::span<const void* const> open, void* out,
                          std::size_t count) const = 0;
  /// into[i] += from[i]; F32 or F64.
  virtual void add_into(void* into, const void* from, DType type, std::size_t count) const = 0;
  /// kernel::fold() of a sum.
  virtual void fold(DType type, std::span<const kernel::FoldStep> steps,
                    std::span<const void* const> in, void* out, std::size_t count) const = 0;
  virtual void clear(void* at, std::size_t bytes) const = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) const = 0;
  /// The fp64 sums of squares of every chunk of 4,096 elements of each range, in their order.
  virtual std::vector<double> squares(std::span<const FlatRange> ranges) const = 0;
  /// The sum of one range's squares(), a scalar on the device. Does not wait.
  virtual at::Tensor square_sum(const FlatRange& range) const = 0;
  /// The index of the first range that holds an infinity or a NaN, or ranges.size().
  virtual std::size_t first_not_finite(std::span<const FlatRange> ranges) const = 0;
};

const FlatMath& flat_math(Device device);

/// The fp64 sums of squares of every chunk of 4,096 elements of a flat tensor, on its device:
/// [chunks]. The order of addition depends on the size only. Does not wait.
at::Tensor chunk_squares(const at::Tensor& flat);
/// Sums over the last dimension, whose size is a power of two, by halves.
at::Tensor sum_by_halves(at::Tensor values);

/// Which implementation computes on a device: Trireme's kernels or LibTorch's operations. The CPU
/// has both; every other device has LibTorch's only.
enum class Implementation { Kernels, LibTorch };
Implementation implementation_of(Device device);
Implementation implementation_of(const at::Tensor& tensor);

/// While it lives, the CPU computes by LibTorch's operations, as other devices do. For tests that
/// compare a device's bits with the CPU's. Whole process.
class LibTorchOnCpu {
 public:
  LibTorchOnCpu();
  ~LibTorchOnCpu();
  LibTorchOnCpu(const LibTorchOnCpu&) = delete;
};

}  // namespace trireme::inline v0::tensor
