// SliceOptimizer: what all optimizers share: the slices and their numbers, the step count, and the
// state tensors of each slice. Internal to optim/.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "trireme/kernel/elementwise.h"
#include "trireme/optim/groups.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/state_store.h"

namespace trireme::inline v0::optim {

/// `count` elements of a slice, from a multiple of 4,096 on: the whole slice or one chunk of it.
template <class T>
struct SliceRange {
  std::int64_t begin = 0;  // element of the parameter
  std::size_t count = 0;
  const T* gradient = nullptr;
  T* weight = nullptr;
  BFloat16* compute = nullptr;  // null if there is none or it is fp16
  std::uint32_t chunk() const { return static_cast<std::uint32_t>(begin / kernel::kNormChunk); }
};

class SliceOptimizer : public Optimizer {
 public:
  template <class Options>
  explicit SliceOptimizer(const Options& options)
      : rate_(options.learning_rate),
        weight_decay_(options.weight_decay),
        groups_(options.groups),
        state_names_(options.state()) {}

  void attach(std::span<const OwnedSlice> slices, std::span<const ParameterInfo> parameters,
              std::shared_ptr<SharedSums> sums) override;
  PartUpdate begin_parts(double, double) override { return {}; }
  void apply(double learning_rate, double scale) final;
  double base_learning_rate() const noexcept override { return rate_; }
  std::int64_t step_count() const noexcept override { return step_count_; }
  void set_step_count(std::int64_t count) override { step_count_ = count; }
  std::vector<NamedShard> state() override;
  void settle() override { state_.wait(); }
  void keep_state_on_host() override { state_.keep_on_host(); }
  std::size_t bytes_on_host() const noexcept override { return state_.bytes_on_host(); }

 protected:
  /// apply() without refreshing the compute copies: apply() converts those afterwards that kernels
  /// have not written. No gradient mode.
  virtual void update(double learning_rate, double scale) = 0;
  /// Whether LibTorch's operations update the slice, and not our kernels.
  static bool by_tensors(const OwnedSlice& slice);
  /// The slice's memory as a flat tensor.
  static at::Tensor gradient_of(const OwnedSlice& slice);
  /// Whether this slice has state tensor number `kind`, of the slice's size.
  virtual bool has_state(const OwnedSlice&, std::size_t) const { return true; }
  /// Null if the slice has none.
  template <class T>
  T* state_of(std::size_t slice, std::size_t kind) const {
    const at::Tensor& tensor = state_.kept(slice)[kind];
    return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
  }
  /// Calls update(T{}) with T the slice's master type.
  template <class Update>
  static void in_type(const OwnedSlice& slice, Update update) {
    if (slice.master_dtype == DType::F64) {
      update(double{});
    } else {
      update(float{});
    }
  }
  template <class T>
  static SliceRange<T> whole(const OwnedSlice& slice) {
    return {slice.begin, static_cast<std::size_t>(slice.size()),
            static_cast<const T*>(slice.gradient), static_cast<T*>(slice.weight),
            slice.compute_dtype == DType::BF16 ? static_cast<BFloat16*>(slice.compute) : nullptr};
  }
  /// Calls update(chunk, number of the slice's elements before it) for every chunk of the slice.
  template <class T, class Update>
  static void each_chunk(const OwnedSlice& slice, Update update) {
    const SliceRange<T> all = whole<T>(slice);
    for (std::size_t at = 0; at < all.count; at += kernel::kNormChunk) {
      update(SliceRange<T>{all.begin + static_cast<std::int64_t>(at),
                           std::min(kernel::kNormChunk, all.count - at), all.gradient + at,
                           all.weight + at, all.compute != nullptr ? all.compute + at : nullptr},
             at);
    }
  }
  /// Adds up the sums of parameters shared with other ranks. Collective.
  void complete(std::span<ChunkSum> sums) {
    if (sums_) sums_->complete(sums);
  }
  /// One empty sum per parameter of the model, of width(parameter) numbers.
  template <class Width>
  std::vector<ChunkSum> sums_over_parameters(Width width) const {
    std::vector<ChunkSum> sums;
    for (std::uint32_t i = 0; i < parameters_.size(); ++i)
      sums.emplace_back(i, num_chunks(i), width(i));
    return sums;
  }
  static std::uint32_t first_chunk(const OwnedSlice& slice) {
    return static_cast<std::uint32_t>(slice.begin / static_cast<std::int64_t>(kernel::kNormChunk));
  }
  std::int64_t num_elements(std::uint32_t parameter) const;
  std::uint32_t num_chunks(std::uint32_t parameter) const;

  double rate_, weight_decay_;
  std::vector<ParameterGroup> groups_;
  std::vector<std::string> state_names_;
  std::vector<OwnedSlice> slices_;
  std::vector<ParameterNumbers> numbers_;  // per slice
  std::vector<ParameterInfo> parameters_;
  std::shared_ptr<SharedSums> sums_;
  StateStore state_;
  std::int64_t step_count_ = 0;
};

/// Adds a parameter's chunk sums in ascending order, one after the other.
double fold(std::span<const double> chunk_sums);

// The optimizers whose step needs sums over whole parameters.
std::unique_ptr<Optimizer> make_summing(const Lamb& options);
std::unique_ptr<Optimizer> make_summing(const Adafactor& options);

}  // namespace trireme::inline v0::optim
