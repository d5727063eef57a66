#include "trireme/tensor/products/gemm.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <atomic>
#include <vector>

#include "trireme/kernel/elementwise.h"
#include "trireme/kernel/gemm.h"
#include "trireme/tensor/functions/typed.h"
#include "trireme/tensor/products/kernel_table.h"

// LibTorch's CPU builds contain a BLAS and export its Fortran interface. Weak, because other builds
// may not; products then go through ATen.
extern "C" {
__attribute__((weak)) void sgemm_(const char*, const char*, const int*, const int*, const int*,
                                  const float*, const float*, const int*, const float*, const int*,
                                  const float*, float*, const int*);
__attribute__((weak)) void dgemm_(const char*, const char*, const int*, const int*, const int*,
                                  const double*, const double*, const int*, const double*,
                                  const int*, const double*, double*, const int*);
__attribute__((weak)) void gemm_bf16bf16f32_(const char*, const char*, const int*, const int*,
                                             const int*, const float*, const std::uint16_t*,
                                             const int*, const std::uint16_t*, const int*,
                                             const float*, float*, const int*);
}

namespace trireme::inline v0::tensor {
namespace {

const KernelTable& table() { return kernel_table(); }

std::atomic<Products> products = Products::Fp32;

char letter(Form form) { return form == Form::Plain ? 'N' : 'T'; }

// Row-major c = a b is column-major c^T = b^T a^T: the operands are swapped.
template <class T, class C, class Blas>
void call(Blas blas, std::int64_t m, std::int64_t n, std::int64_t k, Operand<T> a, Operand<T> b,
          C* c, std::int64_t c_stride, bool accumulate) {
  const int rows = static_cast<int>(n), columns = static_cast<int>(m), depth = static_cast<int>(k);
  const int lda = static_cast<int>(b.stride), ldb = static_cast<int>(a.stride);
  const int ldc = static_cast<int>(c_stride);
  const C one = 1, beta = accumulate ? 1 : 0;
  const char trans_a = letter(b.form), trans_b = letter(a.form);
  if constexpr (std::is_same_v<T, BFloat16>) {
    blas(&trans_a, &trans_b, &rows, &columns, &depth, &one, &b.data->bits, &lda, &a.data->bits,
         &ldb, &beta, c, &ldc);
  } else {
    blas(&trans_a, &trans_b, &rows, &columns, &depth, &one, b.data, &lda, a.data, &ldb, &beta, c,
         &ldc);
  }
}

template <class T>
at::Tensor view(const T* data, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                Form form) {
  const auto type = std::is_same_v<T, double> ? at::kDouble : at::kFloat;
  const std::vector<std::int64_t> strides = form == Form::Plain
                                                ? std::vector<std::int64_t>{stride, 1}
                                                : std::vector<std::int64_t>{1, stride};
  return at::from_blob(const_cast<T*>(data), {rows, columns}, strides, type);
}

template <class T>
void through_aten(std::int64_t m, std::int64_t n, std::int64_t k, Operand<T> a, Operand<T> b, T* c,
                  std::int64_t c_stride, bool accumulate) {
  at::Tensor out = view(c, m, n, c_stride, Form::Plain);
  at::addmm_out(out, out, view(a.data, m, k, a.stride, a.form),
                view(b.data, k, n, b.stride, b.form), accumulate ? 1 : 0, 1);
}

// The operand in another type, in the same form, with contiguous rows.
template <class To, class From>
std::vector<To> converted(const Operand<From>& x, std::int64_t rows, std::int64_t columns) {
  const auto stored_rows = x.form == Form::Plain ? rows : columns;
  const auto stored_columns = static_cast<std::size_t>(x.form == Form::Plain ? columns : rows);
  std::vector<To> other(static_cast<std::size_t>(stored_rows) * stored_columns);
  for (std::int64_t row = 0; row < stored_rows; ++row) {
    kernel::convert(x.data + row * x.stride,
                    other.data() + static_cast<std::size_t>(row) * stored_columns, stored_columns);
  }
  return other;
}

bool in_bf16(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat && fp32_products() == Products::Bf16;
}

template <class T>
Operand<T> rows_of(const at::Tensor& x, Form form) {
  return {static_cast<const T*>(x.const_data_ptr()), x.size(1), form};
}

// mkldnn::_linear_pointwise: oneDNN's product of x and weight^T for any strides, in true fp32.
at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  using Scalars = c10::List<std::optional<at::Scalar>>;
  using Signature =
      at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                 c10::string_view, Scalars, std::optional<c10::string_view>);
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
                                    .typed<Signature>();
  return operation.call(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt,
                        "none", Scalars(), "");
}

// x [rows, columns] in fp32, transposed and contiguous: oneDNN takes its left operand only so, and
// LibTorch's copy takes two to seven times as long.
at::Tensor transposed(const at::Tensor& x) {
  const at::Tensor packed = x.contiguous();
  const at::Tensor result = at::empty({x.size(1), x.size(0)}, packed.options());
  kernel::transpose(packed.const_data_ptr<float>(), static_cast<std::size_t>(x.size(0)),
                    static_cast<std::size_t>(x.size(1)), result.data_ptr<float>());
  return result;
}

template <class T>
kernel::Matrix<T> matrix(const Operand<T>& operand) {
  return {operand.data, static_cast<std::size_t>(operand.stride), operand.form == Form::Transposed};
}
template <class T>
void own(std::int64_t m, std::int64_t n, std::int64_t k, Operand<T> a, Operand<T> b, float* c,
         std::int64_t c_stride, bool accumulate) {
  kernel::gemm(kernel::Product<T>{static_cast<std::size_t>(m), static_cast<std::size_t>(n),
                                  static_cast<std::size_t>(k), matrix(a), matrix(b), c,
                                  static_cast<std::size_t>(c_stride), accumulate});
}

void gemm_fp32(std::int64_t m, std::int64_t n, std::int64_t k, Operand<float> a, Operand<float> b,
               float* c, std::int64_t c_stride, bool accumulate) {
  if (table().attention == Library::Own) return own(m, n, k, a, b, c, c_stride, accumulate);
  if (sgemm_ == nullptr) return through_aten(m, n, k, a, b, c, c_stride, accumulate);
  call(sgemm_, m, n, k, a, b, c, c_stride, accumulate);
}

// Converting bf16 or fp16 to fp32 is exact, so the result is rounded no further time.
template <class Half>
void gemm_widened(std::int64_t m, std::int64_t n, std::int64_t k, Operand<Half> a, Operand<Half> b,
                  float* c, std::int64_t c_stride, bool accumulate) {
  const auto wide_a = converted<float>(a, m, k), wide_b = converted<float>(b, k, n);
  const Operand<float> left{wide_a.data(), a.form == Form::Plain ? k : m, a.form};
  const Operand<float> right{wide_b.data(), b.form == Form::Plain ? n : k, b.form};
  gemm_fp32(m, n, k, left, right, c, c_stride, accumulate);
}

// A contiguous copy of bf16 or fp16 in fp32, and back.
at::Tensor widened(const at::Tensor& half) {
  if (!half.defined()) return half;
  const at::Tensor packed = half.contiguous();
  at::Tensor wide = at::empty(packed.sizes(), packed.options().dtype(at::kFloat));
  for_type(packed.scalar_type(), [&]<class T>() {
    if constexpr (kIsHalf<T>)
      kernel::convert(static_cast<const T*>(packed.const_data_ptr()), wide.data_ptr<float>(),
                      static_cast<std::size_t>(packed.numel()));
  });
  return wide;
}
at::Tensor rounded(const at::Tensor& wide, const at::Tensor& like) {
  return narrowed(wide.contiguous(), like.scalar_type());
}

}  // namespace

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Operand<float> a, Operand<float> b,
          float* c, std::int64_t c_stride, bool accumulate) {
  if (fp32_products() == Products::Fp32) return gemm_fp32(m, n, k, a, b, c, c_stride, accumulate);
  const auto rounded_a = converted<BFloat16>(a, m, k), rounded_b = converted<BFloat16>(b, k, n);
  const Operand<BFloat16> left{rounded_a.data(), a.form == Form::Plain ? k : m, a.form};
  const Operand<BFloat16> right{rounded_b.data(), b.form == Form::Plain ? n : k, b.form};
  gemm(m, n, k, left, right, c, c_stride, accumulate);
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Operand<double> a, Operand<double> b,
          double* c, std::int64_t c_stride, bool accumulate) {
  if (dgemm_ == nullptr) return through_aten(m, n, k, a, b, c, c_stride, accumulate);
  call(dgemm_, m, n, k, a, b, c, c_stride, accumulate);
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Operand<BFloat16> a, Operand<BFloat16> b,
          float* c, std::int64_t c_stride, bool accumulate) {
  const Library library = table().attention_bf16;
  if (library == Library::Own) return own(m, n, k, a, b, c, c_stride, accumulate);
  if (library == Library::Blas && gemm_bf16bf16f32_ != nullptr) {
    return call(gemm_bf16bf16f32_, m, n, k, a, b, c, c_stride, accumulate);
  }
  gemm_widened(m, n, k, a, b, c, c_stride, accumulate);
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Operand<Float16> a, Operand<Float16> b,
          float* c, std::int64_t c_stride, bool accumulate) {
  gemm_widened(m, n, k, a, b, c, c_stride, accumulate);
}

bool blas_multiplies_bf16() noexcept { return gemm_bf16bf16f32_ != nullptr; }

void set_fp32_products(Products wanted) noexcept { products = wanted; }
Products fp32_products() noexcept { return products.load(std::memory_order_relaxed); }

namespace {

// A linear layer's product of [m, k] and [k, n], of these operands' rows as they lie.
struct LinearProduct {
  const at::Tensor &left, &right;
  Form left_form, right_form;
  Library large;  // for products that are not small

  std::int64_t m() const { return left.size(left_form == Form::Plain ? 0 : 1); }
  std::int64_t k() const { return left.size(left_form == Form::Plain ? 1 : 0); }
  std::int64_t n() const { return right.size(right_form == Form::Plain ? 1 : 0); }
  bool in(Library library) const {
    const std::int64_t work = m() * n() * k();
    if (work == 0) return library == Library::Aten;  // oneDNN refuses empty operands
    const bool small = work <= kSmallProduct;
    if (left.scalar_type() == at::kBFloat16)
      return library == (small ? table().small_bf16 : table().linear_bf16);
    return left.scalar_type() == at::kFloat && library == (small ? table().small : large);
  }
  bool by_gemm() const { return in_bf16(left) || in(Library::Own); }
  bool in_fp32() const { return left.scalar_type() == at::kHalf || in(Library::Widened); }

  at::Tensor run_gemm(const at::Tensor& bias) const {
    const at::Tensor a = left.contiguous(), b = right.contiguous();
    const at::Tensor result = at::empty({m(), n()}, left.options().dtype(at::kFloat));
    if (bias.defined()) result.copy_(bias.expand({m(), n()}));
    const auto run = [&]<class T>(Gemm<T>* multiply) {
      multiply(m(), n(), k(), rows_of<T>(a, left_form), rows_of<T>(b, right_form),
               result.data_ptr<float>(), n(), bias.defined());
    };
    if (left.scalar_type() == at::kBFloat16) {
      run.template operator()<BFloat16>(own<BFloat16>);
      return narrowed(result, at::kBFloat16);
    }
    run.template operator()<float>(in_bf16(left) ? static_cast<Gemm<float>*>(gemm) : own<float>);
    return result;
  }
  template <class T>
  using Gemm = void(std::int64_t, std::int64_t, std::int64_t, Operand<T>, Operand<T>, float*,
                    std::int64_t, bool);
};

}  // namespace

at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const LinearProduct product{x, weight, Form::Plain, Form::Transposed, table().forward};
  if (product.in_fp32())
    return rounded(linear_forward(widened(x), widened(weight), widened(bias)), x);
  if (product.by_gemm()) return product.run_gemm(bias);
  if (product.in(Library::OneDnn)) return onednn_linear(x, weight, bias);
  return at::linear(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt);
}

at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  const LinearProduct product{dy, weight, Form::Plain, Form::Plain, table().input_gradient};
  if (product.in_fp32()) return rounded(linear_input_gradient(widened(dy), widened(weight)), dy);
  if (product.by_gemm()) return product.run_gemm({});
  if (product.in(Library::OneDnn)) return onednn_linear(dy, weight.t(), {});
  return at::mm(dy, weight);
}

at::Tensor linear_weight_gradient(const at::Tensor& dy, const at::Tensor& x) {
  const LinearProduct product{dy, x, Form::Transposed, Form::Plain, table().weight_gradient};
  if (product.in_fp32()) return rounded(linear_weight_gradient(widened(dy), widened(x)), dy);
  if (product.by_gemm()) return product.run_gemm({});
  if (product.in(Library::OneDnn)) return onednn_linear(transposed(dy), x.t(), {});
  return at::mm(dy.t(), x);
}

}  // namespace trireme::inline v0::tensor
