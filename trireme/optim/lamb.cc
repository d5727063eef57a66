#include <ATen/Functions.h>

#include <cmath>

#include "trireme/kernel/optimizers/apply.h"
#include "trireme/optim/slice_optimizer.h"
#include "trireme/optim/tensor_rule.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::optim {
namespace {

// Two passes per step. The first updates the moments and adds |w|^2 and |u|^2 chunk by chunk. The
// second recomputes u from the same numbers and applies it, so u needs no memory.
class LambOptimizer final : public SliceOptimizer {
 public:
  explicit LambOptimizer(const Lamb& options) : SliceOptimizer(options), options_(options) {}
  std::string_view name() const noexcept override { return Lamb::kName; }

  void update(double learning_rate, double scale) override {
    ++step_count_;
    // Elements 2k and 2k + 1 are |w|^2 and |u|^2 of chunk k.
    std::vector<ChunkSum> squares =
        sums_over_parameters([&](std::uint32_t i) { return 2 * std::size_t{num_chunks(i)}; });
    DeviceSums on_devices;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      if (slices_[i].size() == 0) continue;
      ChunkSum& sum = squares[slices_[i].parameter];
      if (by_tensors(slices_[i])) {
        const auto state = state_.fetch(i);
        apply_by_tensors(moments(scale), {gradient_of(slices_[i]), state[0], state[1]});
        state_.store(i);
        on_devices.add_chunks(
            sum, first_chunk(slices_[i]),
            at::stack(
                {tensor::chunk_squares(state_.weight(i)), tensor::chunk_squares(direction(i))}, 1));
        continue;
      }
      in_type(slices_[i], [&]<class T>(T) {
        update_moments<T>(i, scale);
        add_squares<T>(i, sum);
      });
    }
    state_.end_pass();
    on_devices.deliver();
    complete(squares);
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      if (slices_[i].size() == 0) continue;
      const double rate = learning_rate * numbers_[i].rate_factor *
                          trust_ratio(squares[slices_[i].parameter].total());
      if (by_tensors(slices_[i])) {
        const at::Tensor u = direction(i);
        apply_by_tensors(kernel::Descend{.rate = rate}, {u, state_.weight(i)});
        state_.store_weight(i);
        continue;
      }
      in_type(slices_[i], [&]<class T>(T) { move<T>(i, rate); });
    }
  }

 private:
  kernel::LambDirection numbers(std::size_t slice) const {
    const auto step = static_cast<double>(step_count_);
    return {.bias1 = 1.0 - std::pow(options_.beta1, step),
            .sqrt_bias2 = std::sqrt(1.0 - std::pow(options_.beta2, step)),
            .epsilon = options_.epsilon,
            .weight_decay = numbers_[slice].weight_decay};
  }

  kernel::LambMoments moments(double scale) const {
    return {.scale = scale,
            .one_minus_beta1 = 1.0 - options_.beta1,
            .beta2 = options_.beta2,
            .one_minus_beta2 = 1.0 - options_.beta2};
  }

  at::Tensor direction(std::size_t slice) {
    const auto state = state_.fetch(slice);
    return apply_by_tensors(numbers(slice),
                            {state_.weight(slice), state[0], state[1], at::Tensor()});
  }

  template <class T>
  void update_moments(std::size_t slice, double scale) {
    const SliceRange<T> part = whole<T>(slices_[slice]);
    kernel::apply(moments(scale), {part.gradient}, {state_of<T>(slice, 0), state_of<T>(slice, 1)},
                  nullptr, part.count);
  }

  /// Calls visit(chunk, u) for every chunk of the slice.
  template <class T, class Visit>
  void each_direction(std::size_t slice, Visit visit) {
    const kernel::LambDirection given = numbers(slice);
    const T* mean = state_of<T>(slice, 0);
    const T* square = state_of<T>(slice, 1);
    T direction[kernel::kNormChunk];
    each_chunk<T>(slices_[slice], [&](const SliceRange<T>& part, std::size_t at) {
      T* const u = direction;
      kernel::apply(given, {static_cast<const T*>(part.weight), mean + at, square + at}, {u},
                    nullptr, part.count);
      visit(part, static_cast<const T*>(direction));
    });
  }

  template <class T>
  void add_squares(std::size_t slice, ChunkSum& squares) {
    each_direction<T>(slice, [&](const SliceRange<T>& part, const T* direction) {
      const double both[2] = {kernel::chunk_square_sum(part.weight, part.count),
                              kernel::chunk_square_sum(direction, part.count)};
      squares.add(part.chunk(), 2 * std::size_t{part.chunk()}, both);
    });
  }

  template <class T>
  void move(std::size_t slice, double rate) {
    each_direction<T>(slice, [&](const SliceRange<T>& part, const T* direction) {
      kernel::apply(kernel::Descend{.rate = rate}, {direction}, {part.weight}, part.compute,
                    part.count);
    });
  }

  static double trust_ratio(const std::vector<double>& squares) {
    double weight = 0, direction = 0;
    for (std::size_t i = 0; i < squares.size(); i += 2) {
      weight += squares[i];
      direction += squares[i + 1];
    }
    return weight > 0 && direction > 0 ? std::sqrt(weight) / std::sqrt(direction) : 1.0;
  }

  Lamb options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_summing(const Lamb& options) {
  return std::make_unique<LambOptimizer>(options);
}

}  // namespace trireme::inline v0::optim
