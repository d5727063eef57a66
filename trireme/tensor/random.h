// Counter-based random numbers (kernel/philox.h) for tensors: a value is a function of its key and
// its index alone, never of a rank, a thread or of what was drawn before. Stateless, thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace trireme {
inline namespace v0 {
namespace tensor {

/// Fills `out` (float type, contiguous) with normal numbers keyed by (seed, name): Box-Muller in
/// fp32 precision, whatever the type, so that all precisions start from the same values.
void fill_normal(at::Tensor out, std::uint64_t seed, std::string_view name, double mean,
                 double stddev);
/// Uniform on [low, high).
void fill_uniform(at::Tensor out, std::uint64_t seed, std::string_view name, double low,
                  double high);

/// The stream of one (step, sample, layer) under one seed, for dropout and the like.
struct StreamKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0, sample = 0;
  std::uint32_t layer = 0;
  std::uint64_t stream() const noexcept;
};
/// Elements are 1/(1-p) with probability 1-p, else 0; keyed by (key, element index).
void fill_dropout_mask(at::Tensor out, const StreamKey& key, double p);

/// Seeds LibTorch's default generator for a foreign module: by (seed, name) before it is built, by
/// (seed, step, micro-batch, block) before it runs.
void seed_default_generator(std::uint64_t seed, std::string_view name);
void seed_default_generator(const StreamKey& key);

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
