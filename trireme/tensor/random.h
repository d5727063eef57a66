// Counter-based random numbers (kernel/philox.h) for tensors: a value depends on its key and its
// index only, never on a rank, a thread or earlier draws. Stateless, thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme::inline v0::tensor {

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
/// Elements are 1/(1-p) with probability 1-p, else 0; keyed by (key, `first` + element index).
void fill_dropout_mask(at::Tensor out, const StreamKey& key, double p, std::int64_t first = 0);

/// While it lives, dropout() of this thread draws from `key`'s stream. Scopes nest.
class StreamScope {
 public:
  explicit StreamScope(const StreamKey& key);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;

 private:
  StreamKey key_;
  std::uint32_t draws_ = 0;  // so far
  StreamScope* outer_;
  friend StreamKey next_stream();
};
/// x times a mask of 1/(1-p) with probability 1-p, else 0 (Srivastava et al. 2014), under autograd.
/// The n-th call in a StreamScope draws from (its key, n), so the mask is the same on any rank,
/// lane or thread. CheckFailure outside of a StreamScope.
at::Tensor dropout(const at::Tensor& x, double p);
/// The elements of a tensor from `begin` on along dim 1, where the whole tensor is `whole` long.
struct Window {
  std::int64_t begin = 0, whole = 0;
};
/// dropout() of a window `x` of a larger tensor: drops the elements that dropout() of the larger
/// tensor drops.
at::Tensor dropout(const at::Tensor& x, double p, const Window& window);

/// The streams of masks in a recorded pass (device_graph.h). While a Scope lives, masks that this
/// thread draws on the device read their streams' numbers from the device's memory. set() changes
/// these numbers, so each replay has other masks.
class RecordedStreams {
 public:
  explicit RecordedStreams(at::Device device);
  /// The next replay draws the masks of this step and sample.
  void set(std::int64_t step, std::int64_t sample);

  /// Returns two words in the device's memory: the lower and the upper half of the stream's number.
  at::Tensor add(const StreamKey& key);

  class Scope {
   public:
    explicit Scope(RecordedStreams& streams);
    ~Scope();
    Scope(const Scope&) = delete;
  };

 private:
  std::vector<StreamKey> keys_;
  at::Tensor words_;  // [kMostMasks, 2] int64; row i for keys_[i]
};

/// A number that changes with every draw from LibTorch's default generators of the CPU and of
/// `device`, and with every seed.
std::uint64_t default_generator_position(at::Device device = at::kCPU);
/// Seeds LibTorch's default generator for a user's module: by (seed, name) before it is built, by
/// (seed, step, micro-batch, block) before it runs. The generator of `device` is seeded, too,
/// except in a recorded pass, which does not allow it.
void seed_default_generator(std::uint64_t seed, std::string_view name);
void seed_default_generator(const StreamKey& key, at::Device device = at::kCPU);

}  // namespace trireme::inline v0::tensor
