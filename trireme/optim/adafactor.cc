#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <limits>
#include <map>

#include "trireme/base/check.h"
#include "trireme/kernel/optimizers/apply.h"
#include "trireme/optim/matrix_squares.h"
#include "trireme/optim/slice_optimizer.h"
#include "trireme/optim/tensor_rule.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::optim {
namespace {

// The means of torch.optim.Adafactor: row means over C and column means over R. A vector (rows = 0)
// keeps each element's mean square.
struct Factors : Matrices {
  at::Tensor row, column;  // [num * R], [num * C] if this rank owns a slice
  bool factored() const noexcept { return rows > 0; }
  std::size_t num_rows() const { return static_cast<std::size_t>(num * rows); }
  std::size_t num_columns() const { return static_cast<std::size_t>(num * columns); }
};

Factors factors_of(const std::vector<std::int64_t>& shape) {
  Factors factors;
  if (shape.size() < 2) return factors;
  factors.columns = shape.back();
  factors.rows = shape[shape.size() - 2];
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) factors.num *= shape[i];
  return factors;
}

// Elements [begin, begin + count) lie in one row.
struct RowPart {
  std::int64_t row = 0;     // index over all matrices' rows
  std::int64_t column = 0;  // index over all matrices' columns, of the element at `begin`
  std::size_t at = 0, count = 0;
};
template <class Visit>
void each_row(const Factors& factors, std::int64_t begin, std::size_t count, Visit visit) {
  for (std::size_t at = 0; at < count;) {
    const std::int64_t element = begin + static_cast<std::int64_t>(at);
    const std::int64_t row = element / factors.columns, first = element % factors.columns;
    const std::size_t length =
        std::min(count - at, static_cast<std::size_t>(factors.columns - first));
    visit(RowPart{row, row / factors.rows * factors.columns + first, at, length});
    at += length;
  }
}

// Three passes per step: sums of the weights' squares, and of the gradients' by row and column; new
// means and the update's norm; the update itself.
class AdafactorOptimizer final : public SliceOptimizer {
 public:
  explicit AdafactorOptimizer(const Adafactor& options)
      : SliceOptimizer(options), options_(options) {}
  std::string_view name() const noexcept override { return Adafactor::kName; }

  void attach(std::span<const OwnedSlice> slices, std::span<const ParameterInfo> parameters,
              std::shared_ptr<SharedSums> sums) override {
    for (const ParameterInfo& parameter : parameters)
      factors_.push_back(factors_of(parameter.shape));
    SliceOptimizer::attach(slices, parameters, std::move(sums));
    for (const OwnedSlice& slice : slices_) {
      Factors& factors = factors_[slice.parameter];
      if (!factors.factored() || factors.row.defined()) continue;
      const auto type = at::TensorOptions(tensor::at_device(slice.device))
                            .dtype(tensor::scalar_type_of(slice.master_dtype));
      factors.row = at::zeros({factors.num * factors.rows}, type);
      factors.column = at::zeros({factors.num * factors.columns}, type);
    }
  }

  void update(double learning_rate, double scale) override {
    const double step = static_cast<double>(++step_count_);
    const double blend = std::pow(step, options_.beta2_decay);
    const std::vector<double> sizes = update_means(scale, blend);
    std::vector<ChunkSum> updates =
        sums_over_parameters([&](std::uint32_t i) { return std::size_t{num_chunks(i)}; });
    DeviceSums on_devices;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      if (slices_[i].size() == 0) continue;
      ChunkSum& sum = updates[slices_[i].parameter];
      if (by_tensors(slices_[i])) {
        on_devices.add_chunks(sum, first_chunk(slices_[i]),
                              tensor::chunk_squares(direction(i, scale)).unsqueeze(-1));
        continue;
      }
      in_type(slices_[i], [&]<class T>(T) {
        each_direction<T>(i, scale, [&](const SliceRange<T>& part, const T* direction) {
          const double square = kernel::chunk_square_sum(direction, part.count);
          sum.add(part.chunk(), part.chunk(), {&square, 1});
        });
      });
    }
    state_.end_pass();
    on_devices.deliver();
    complete(updates);
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      if (slices_[i].size() == 0) continue;
      const std::uint32_t parameter = slices_[i].parameter;
      const double rate = learning_rate * numbers_[i].rate_factor;
      const double relative = std::min(rate, 1.0 / std::sqrt(step));
      const double root = std::sqrt(static_cast<double>(num_elements(parameter)));
      const double size = std::max(options_.smallest_scale, sizes[parameter] / root);
      const double length = std::sqrt(fold(updates[parameter].total()));
      const double divisor = std::max(1.0, length / (root * options_.clip));
      const kernel::Descend descend{.decay = 1.0 - rate * numbers_[i].weight_decay,
                                    .rate = relative * size / divisor};
      if (by_tensors(slices_[i])) {
        const at::Tensor u = direction(i, scale);
        apply_by_tensors(descend, {u, state_.weight(i)});
        state_.store_weight(i);
        continue;
      }
      in_type(slices_[i], [&]<class T>(T) {
        each_direction<T>(i, scale, [&](const SliceRange<T>& part, const T* direction) {
          kernel::apply(descend, {direction}, {part.weight}, part.compute, part.count);
        });
      });
    }
  }

  std::vector<NamedShard> state() override {
    std::vector<NamedShard> shards = SliceOptimizer::state();
    for (std::size_t i = 0; i < factors_.size(); ++i) {
      for (const auto& [name, tensor] :
           {std::pair{"row_var", factors_[i].row}, std::pair{"col_var", factors_[i].column}}) {
        if (!tensor.defined()) continue;
        shards.push_back({.name = parameters_[i].name + "." + name,
                          .dtype = tensor::dtype_of(tensor),
                          .shape = {tensor.numel()},
                          .begin = 0,
                          .end = tensor.numel(),
                          .local = tensor});
      }
    }
    return shards;
  }

 protected:
  bool has_state(const OwnedSlice& slice, std::size_t) const override {
    return !factors_[slice.parameter].factored();
  }

 private:
  // Returns the norm of each parameter's weights (0 if this rank owns no slice of it).
  std::vector<double> update_means(double scale, double blend) {
    const auto width = [&](std::uint32_t i) { return std::size_t{num_chunks(i)}; };
    std::vector<ChunkSum> sums = sums_over_parameters(width);
    const std::size_t num = sums.size();
    for (std::uint32_t i = 0; i < num; ++i)
      sums.emplace_back(i, num_chunks(i), factors_[i].num_rows());
    for (std::uint32_t i = 0; i < num; ++i)
      sums.emplace_back(i, num_chunks(i), factors_[i].num_columns());
    DeviceSums on_devices;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      if (slices_[i].size() == 0) continue;
      const std::uint32_t p = slices_[i].parameter;
      const MeanSums into{sums[p], sums[num + p], sums[2 * num + p]};
      if (by_tensors(slices_[i])) {
        add_means(i, scale, blend, into, on_devices);
      } else {
        in_type(slices_[i], [&]<class T>(T) { add_means<T>(i, scale, blend, into); });
      }
    }
    state_.end_pass();
    on_devices.deliver();
    complete(sums);
    std::vector<double> norms(num, 0.0);
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const std::uint32_t p = slices_[i].parameter;
      if (i > 0 && slices_[i - 1].parameter == p) continue;
      norms[p] = std::sqrt(fold(sums[p].total()));
      const Factors& factors = factors_[p];
      if (!factors.factored()) continue;
      const double squared = scale * scale;
      const auto row = squared / static_cast<double>(factors.columns);
      const auto column = squared / static_cast<double>(factors.rows);
      blend_into(slices_[i], factors.row, sums[num + p].total(), row, blend);
      blend_into(slices_[i], factors.column, sums[2 * num + p].total(), column, blend);
    }
    return norms;
  }

  // The sums over a parameter for its weights' norm and its new means.
  struct MeanSums {
    ChunkSum &weights, &rows, &columns;
  };

  template <class T>
  void add_means(std::size_t slice, double scale, double blend, const MeanSums& into) {
    const Factors& factors = factors_[slices_[slice].parameter];
    each_chunk<T>(slices_[slice], [&](const SliceRange<T>& part, std::size_t at) {
      const double square = kernel::chunk_square_sum(part.weight, part.count);
      into.weights.add(part.chunk(), part.chunk(), {&square, 1});
      if (factors.factored()) {
        add_gradient(factors, part, into.rows, into.columns);
      } else {
        kernel::apply(kernel::AverageSquares{.scale = scale, .blend = blend}, {part.gradient},
                      {state_of<T>(slice, 0) + at}, nullptr, part.count);
      }
    });
  }

  void add_means(std::size_t number, double scale, double blend, const MeanSums& into,
                 DeviceSums& sums) {
    const OwnedSlice& slice = slices_[number];
    const Factors& factors = factors_[slice.parameter];
    const std::uint32_t chunk = first_chunk(slice);
    const at::Tensor& square = state_.fetch(number)[0];
    sums.add_chunks(into.weights, chunk,
                    tensor::chunk_squares(state_.weight(number)).unsqueeze(-1));
    const at::Tensor gradient = gradient_of(slice);
    if (!factors.factored()) {
      apply_by_tensors(kernel::AverageSquares{.scale = scale, .blend = blend}, {gradient, square});
      state_.store(number);
      return;
    }
    const GradientSlice given{gradient, slice.begin};
    sums.add(row_squares(given, factors),
             [&slice, &factors, &rows = into.rows](std::span<const double> squares) {
               add_rows(slice, factors, squares, rows);
             });
    for (ColumnSquares& node : column_squares(given, factors, num_chunks(slice.parameter))) {
      const auto first = static_cast<std::size_t>(node.first);
      sums.add(node.values, [&columns = into.columns, first,
                             chunks = node.chunks](std::span<const double> squares) {
        columns.add({chunks, first, {squares.begin(), squares.end()}});
      });
    }
  }

  // `squares`: of row_squares().
  static void add_rows(const OwnedSlice& slice, const Factors& factors,
                       std::span<const double> squares, ChunkSum& rows) {
    constexpr auto chunk = static_cast<std::int64_t>(kernel::kNormChunk);
    const auto width =
        squares.size() / static_cast<std::size_t>((slice.size() + chunk - 1) / chunk);
    std::uint32_t number = first_chunk(slice);
    for (std::int64_t begin = slice.begin; begin < slice.end; begin += chunk, ++number) {
      const std::int64_t first = begin / factors.columns;
      const std::int64_t last = (std::min(begin + chunk, slice.end) - 1) / factors.columns;
      rows.add(number, static_cast<std::size_t>(first),
               squares.first(static_cast<std::size_t>(last - first + 1)));
      squares = squares.subspan(width);
    }
  }

  // Adds the squares of the chunk's gradient, by row and by column.
  template <class T>
  void add_gradient(const Factors& factors, const SliceRange<T>& part, ChunkSum& rows,
                    ChunkSum& columns) {
    std::int64_t first_row = -1, low = std::numeric_limits<std::int64_t>::max(), high = 0;
    row_sums_.clear();
    each_row(factors, part.begin, part.count, [&](const RowPart& piece) {
      if (first_row < 0) first_row = piece.row;
      low = std::min(low, piece.column);
      high = std::max(high, piece.column + static_cast<std::int64_t>(piece.count));
      row_sums_.push_back(kernel::chunk_square_sum(part.gradient + piece.at, piece.count));
    });
    column_sums_.assign(static_cast<std::size_t>(high - low), 0.0);
    each_row(factors, part.begin, part.count, [&](const RowPart& piece) {
      kernel::add_squares(part.gradient + piece.at, &column_sums_[std::size_t(piece.column - low)],
                          piece.count);
    });
    rows.add(part.chunk(), static_cast<std::size_t>(first_row), row_sums_);
    columns.add(part.chunk(), static_cast<std::size_t>(low), column_sums_);
  }

  static void blend_into(const OwnedSlice& slice, const at::Tensor& means,
                         const std::vector<double>& sums, double factor, double blend) {
    if (by_tensors(slice)) {
      const at::Tensor all = tensor::on_device(at::tensor(sums, at::kDouble), means.device());
      const at::Tensor mean = means.to(at::kDouble);
      means.copy_(mean + (all * factor - mean) * blend);
      return;
    }
    in_type(slice, [&]<class T>(T) {
      T* mean = static_cast<T*>(means.data_ptr());
      for (std::size_t i = 0; i < sums.size(); ++i)
        mean[i] = static_cast<T>(mean[i] + (sums[i] * factor - mean[i]) * blend);
    });
  }

  template <class T>
  double epsilon() const {
    return options_.epsilon > 0 ? options_.epsilon
                                : static_cast<double>(std::numeric_limits<T>::epsilon());
  }

  /// u of the slice.
  at::Tensor direction(std::size_t number, double scale) {
    const OwnedSlice& slice = slices_[number];
    const Factors& factors = factors_[slice.parameter];
    const double least = slice.master_dtype == DType::F64 ? epsilon<double>() : epsilon<float>();
    at::Tensor square = state_.fetch(number)[0];
    if (factors.factored()) {
      const at::Tensor rows = factors.row.to(at::kDouble).view({factors.num, factors.rows});
      const at::Tensor share = rows / rows.mean(1, /*keepdim=*/true).clamp_min(least);
      square = outer_product(share.to(factors.row.scalar_type()), factors.column, factors,
                             slice.begin, slice.size());
    }
    return apply_by_tensors(kernel::FactoredDirection{.scale = scale, .floor = least * least},
                            {gradient_of(slice), square, at::Tensor()});
  }

  /// Calls visit(chunk, u) for every chunk of the slice.
  template <class T, class Visit>
  void each_direction(std::size_t slice, double scale, Visit visit) {
    const Factors& factors = factors_[slices_[slice].parameter];
    const double least = epsilon<T>(), floor = least * least;
    const std::vector<double> means =
        factors.factored() ? matrix_means<T>(factors) : std::vector<double>{};
    const T* row = factors.factored() ? static_cast<const T*>(factors.row.data_ptr()) : nullptr;
    const T* column =
        factors.factored() ? static_cast<const T*>(factors.column.data_ptr()) : nullptr;
    const auto divide = [&](double share, const T* gradient, const T* squares, T* out,
                            std::size_t count) {
      kernel::apply(kernel::FactoredDirection{.scale = scale, .row = share, .floor = floor},
                    {gradient, squares}, {out}, nullptr, count);
    };
    T direction[kernel::kNormChunk];
    each_chunk<T>(slices_[slice], [&](const SliceRange<T>& part, std::size_t at) {
      if (!factors.factored()) {
        divide(1, part.gradient, state_of<T>(slice, 0) + at, direction, part.count);
      } else {
        each_row(factors, part.begin, part.count, [&](const RowPart& piece) {
          const double mean = means[static_cast<std::size_t>(piece.row / factors.rows)];
          const double share = static_cast<double>(row[piece.row]) / std::max(mean, least);
          divide(share, part.gradient + piece.at, column + piece.column, direction + piece.at,
                 piece.count);
        });
      }
      visit(part, static_cast<const T*>(direction));
    });
  }

  // The mean over each matrix's row means.
  template <class T>
  static std::vector<double> matrix_means(const Factors& factors) {
    const T* row = static_cast<const T*>(factors.row.data_ptr());
    std::vector<double> means;
    for (std::int64_t matrix = 0; matrix < factors.num; ++matrix) {
      double sum = 0;
      for (std::int64_t i = 0; i < factors.rows; ++i)
        sum += static_cast<double>(row[matrix * factors.rows + i]);
      means.push_back(sum / static_cast<double>(factors.rows));
    }
    return means;
  }

  Adafactor options_;
  std::vector<Factors> factors_;                // per parameter
  std::vector<double> row_sums_, column_sums_;  // of one chunk
};

}  // namespace

std::unique_ptr<Optimizer> make_summing(const Adafactor& options) {
  return std::make_unique<AdafactorOptimizer>(options);
}

}  // namespace trireme::inline v0::optim
