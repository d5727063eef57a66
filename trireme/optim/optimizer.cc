#include "trireme/optim/optimizer.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/tensor/convert.h"

namespace trireme {
inline namespace v0 {
namespace optim {
namespace {

at::Tensor zeros_for(const OwnedSlice& slice) {
  return at::zeros({slice.size()},
                   at::TensorOptions().dtype(tensor::scalar_type_of(slice.master_dtype)));
}

// What both optimizers share: the slices, the step count, and named state tensors per slice.
class SliceOptimizer : public Optimizer {
 public:
  SliceOptimizer(double rate, std::vector<std::string> state_names)
      : rate_(rate), state_names_(std::move(state_names)) {}

  void attach(std::span<const OwnedSlice> slices) override {
    TRIREME_CHECK(slices_.size() == 0u);
    slices_.assign(slices.begin(), slices.end());
    for (const OwnedSlice& slice : slices_) {
      TRIREME_CHECK((slice.master_dtype == DType::F32 || slice.master_dtype == DType::F64) == true);
      for (std::size_t i = 0; i < state_names_.size(); ++i) state_.push_back(zeros_for(slice));
    }
  }
  double base_learning_rate() const noexcept override { return rate_; }
  std::int64_t step_count() const noexcept override { return step_count_; }
  void set_step_count(std::int64_t count) override { step_count_ = count; }
  int state_bytes_per_element() const noexcept override {
    return 4 * static_cast<int>(state_names_.size());
  }
  std::vector<NamedShard> state(std::span<const std::vector<std::int64_t>> shapes) override {
    std::vector<NamedShard> shards;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const OwnedSlice& slice = slices_[i];
      TRIREME_CHECK(slice.parameter < shapes.size());
      for (std::size_t kind = 0; kind < state_names_.size(); ++kind) {
        shards.push_back({.name = slice.name + "." + state_names_[kind],
                          .dtype = slice.master_dtype,
                          .shape = shapes[slice.parameter],
                          .begin = slice.begin,
                          .end = slice.end,
                          .local = state_of(i, kind)});
      }
    }
    return shards;
  }

 protected:
  const at::Tensor& state_of(std::size_t slice, std::size_t kind) const {
    return state_[slice * state_names_.size() + kind];
  }
  double rate_;
  std::vector<std::string> state_names_;
  std::vector<OwnedSlice> slices_;
  std::vector<at::Tensor> state_;
  std::int64_t step_count_ = 0;
};

template <class T>
T* pointer(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

class AdamWOptimizer final : public SliceOptimizer {
 public:
  explicit AdamWOptimizer(const AdamW& options)
      : SliceOptimizer(options.learning_rate, {"exp_avg", "exp_avg_sq"}), options_(options) {}

  void apply(double learning_rate, double scale) override {
    ++step_count_;
    const double step = static_cast<double>(step_count_);
    const double bias1 = 1.0 - std::pow(options_.beta1, step);
    const double bias2 = 1.0 - std::pow(options_.beta2, step);
    kernel::AdamWNumbers numbers{.scale = scale,
                                 .one_minus_beta1 = 1.0 - options_.beta1,
                                 .beta2 = options_.beta2,
                                 .one_minus_beta2 = 1.0 - options_.beta2,
                                 .step_size = learning_rate / bias1,
                                 .sqrt_bias2 = std::sqrt(bias2),
                                 .epsilon = options_.epsilon};
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const OwnedSlice& slice = slices_[i];
      numbers.decay = slice.decay ? 1.0 - learning_rate * options_.weight_decay : 1.0;
      const auto count = static_cast<std::size_t>(slice.size());
      if (slice.master_dtype == DType::F64) {
        kernel::adamw(numbers, static_cast<const double*>(slice.gradient),
                      static_cast<double*>(slice.weight), pointer<double>(state_of(i, 0)),
                      pointer<double>(state_of(i, 1)), count);
      } else {
        kernel::adamw(numbers, static_cast<const float*>(slice.gradient),
                      static_cast<float*>(slice.weight), pointer<float>(state_of(i, 0)),
                      pointer<float>(state_of(i, 1)), static_cast<BFloat16*>(slice.compute), count);
      }
    }
  }

 private:
  AdamW options_;
};

class SgdOptimizer final : public SliceOptimizer {
 public:
  explicit SgdOptimizer(const Sgd& options)
      : SliceOptimizer(options.learning_rate, options.momentum != 0
                                                  ? std::vector<std::string>{"momentum_buffer"}
                                                  : std::vector<std::string>{}),
        options_(options) {}

  void apply(double learning_rate, double scale) override {
    kernel::SgdNumbers numbers{.scale = scale,
                               .momentum = options_.momentum,
                               .rate = learning_rate,
                               .nesterov = options_.nesterov,
                               .first = step_count_ == 0};
    ++step_count_;
    const bool momentum = !state_names_.empty();
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const OwnedSlice& slice = slices_[i];
      numbers.weight_decay = slice.decay ? options_.weight_decay : 0.0;
      const auto count = static_cast<std::size_t>(slice.size());
      if (slice.master_dtype == DType::F64) {
        kernel::sgd(numbers, static_cast<const double*>(slice.gradient),
                    static_cast<double*>(slice.weight),
                    momentum ? pointer<double>(state_of(i, 0)) : nullptr, count);
      } else {
        kernel::sgd(numbers, static_cast<const float*>(slice.gradient),
                    static_cast<float*>(slice.weight),
                    momentum ? pointer<float>(state_of(i, 0)) : nullptr,
                    static_cast<BFloat16*>(slice.compute), count);
      }
    }
  }

 private:
  Sgd options_;
};

template <class T>
void append_chunks(const OwnedSlice& slice, std::vector<double>& out) {
  const T* gradient = static_cast<const T*>(slice.gradient);
  const auto count = static_cast<std::size_t>(slice.size());
  for (std::size_t begin = 0; begin < count; begin += kernel::kNormChunk) {
    out.push_back(
        kernel::chunk_square_sum(gradient + begin, std::min(kernel::kNormChunk, count - begin)));
  }
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const AdamW& options) {
  return std::make_unique<AdamWOptimizer>(options);
}
std::unique_ptr<Optimizer> make_optimizer(const Sgd& options) {
  return std::make_unique<SgdOptimizer>(options);
}

void chunk_squares(const OwnedSlice& slice, std::vector<double>& out) {
  if (slice.master_dtype == DType::F64) {
    append_chunks<double>(slice, out);
  } else {
    append_chunks<float>(slice, out);
  }
}

}  // namespace optim
}  // namespace v0
}  // namespace trireme
