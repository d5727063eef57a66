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
template <class T, class Blas>
void call(Blas blas, const Gemm<T>& x) {
  const int rows = static_cast<int>(x.n), columns = static_cast<int>(x.m),
            depth = static_cast<int>(x.k);
  const int lda = static_cast<int>(x.b.stride), ldb = static_cast<int>(x.a.stride),
            ldc = static_cast<int>(x.c_stride);
  const kernel::Stat<T> one = 1, beta = x.accumulate ? 1 : 0;
  const char trans_a = letter(x.b.form), trans_b = letter(x.a.form);
  if constexpr (std::is_same_v<T, BFloat16>) {
    blas(&trans_a, &trans_b, &rows, &columns, &depth, &one, &x.b.data->bits, &lda, &x.a.data->bits,
         &ldb, &beta, x.c, &ldc);
  } else {
    blas(&trans_a, &trans_b, &rows, &columns, &depth, &one, x.b.data, &lda, x.a.data, &ldb, &beta,
         x.c, &ldc);
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
void through_aten(const Gemm<T>& x) {
  at::Tensor out = view(x.c, x.m, x.n, x.c_stride, Form::Plain);
  at::addmm_out(out, out, view(x.a.data, x.m, x.k, x.a.stride, x.a.form),
                view(x.b.data, x.k, x.n, x.b.stride, x.b.form), x.accumulate ? 1 : 0, 1);
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

// The product of the operands in another type.
template <class To, class From>
void multiply_as(const Gemm<From>& x, void (*multiply)(const Gemm<To>&)) {
  const auto a = converted<To>(x.a, x.m, x.k), b = converted<To>(x.b, x.k, x.n);
  multiply({x.m, x.n, x.k, Operand<To>{a.data(), x.a.form == Form::Plain ? x.k : x.m, x.a.form},
            Operand<To>{b.data(), x.b.form == Form::Plain ? x.n : x.k, x.b.form}, x.c, x.c_stride,
            x.accumulate});
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
  return operation.call(x, weight, maybe(bias), "none", Scalars(), "");
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
void own(const Gemm<T>& x) {
  kernel::gemm(kernel::Product<T>{static_cast<std::size_t>(x.m), static_cast<std::size_t>(x.n),
                                  static_cast<std::size_t>(x.k), matrix(x.a), matrix(x.b), x.c,
                                  static_cast<std::size_t>(x.c_stride), x.accumulate});
}

void gemm_fp32(const Gemm<float>& x) {
  if (table().attention == Library::Own) return own(x);
  if (sgemm_ == nullptr) return through_aten(x);
  call(sgemm_, x);
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

void gemm(const Gemm<float>& x) {
  if (fp32_products() == Products::Fp32) return gemm_fp32(x);
  multiply_as<BFloat16>(x, gemm);
}

void gemm(const Gemm<double>& x) {
  if (dgemm_ == nullptr) return through_aten(x);
  call(dgemm_, x);
}

// Converting bf16 or fp16 to fp32 is exact, so these products round as often as bf16's own.
void gemm(const Gemm<BFloat16>& x) {
  const Library library = table().attention_bf16;
  if (library == Library::Own) return own(x);
  if (library == Library::Blas && gemm_bf16bf16f32_ != nullptr) return call(gemm_bf16bf16f32_, x);
  multiply_as<float>(x, gemm_fp32);
}

void gemm(const Gemm<Float16>& x) { multiply_as<float>(x, gemm_fp32); }

bool blas_multiplies_bf16() noexcept { return gemm_bf16bf16f32_ != nullptr; }

void set_fp32_products(Products wanted) noexcept { products = wanted; }
Products fp32_products() noexcept { return products.load(std::memory_order_relaxed); }

namespace {

// A linear layer's product of [m, k] and [k, n]. A Transposed operand is stored transposed.
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
    const auto run = [&]<class T>(void (*multiply)(const Gemm<T>&)) {
      multiply({m(), n(), k(), rows_of<T>(a, left_form), rows_of<T>(b, right_form),
                result.data_ptr<float>(), n(), bias.defined()});
    };
    if (left.scalar_type() == at::kBFloat16) {
      run(own<BFloat16>);
      return narrowed(result, at::kBFloat16);
    }
    void (*multiply)(const Gemm<float>&) = own;
    if (in_bf16(left)) multiply = gemm;
    run(multiply);
    return result;
  }
};

}  // namespace

at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const NoAutocast types_as_given;
  const LinearProduct product{x, weight, Form::Plain, Form::Transposed, table().forward};
  if (product.in_fp32())
    return rounded(linear_forward(widened(x), widened(weight), widened(bias)), x);
  if (product.by_gemm()) return product.run_gemm(bias);
  if (product.in(Library::OneDnn)) return onednn_linear(x, weight, bias);
  return at::linear(x, weight, maybe(bias));
}

at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  const NoAutocast types_as_given;
  const LinearProduct product{dy, weight, Form::Plain, Form::Plain, table().input_gradient};
  if (product.in_fp32()) return rounded(linear_input_gradient(widened(dy), widened(weight)), dy);
  if (product.by_gemm()) return product.run_gemm({});
  if (product.in(Library::OneDnn)) return onednn_linear(dy, weight.t(), {});
  return at::mm(dy, weight);
}

at::Tensor linear_weight_gradient(const at::Tensor& dy, const at::Tensor& x) {
  const NoAutocast types_as_given;
  const LinearProduct product{dy, x, Form::Transposed, Form::Plain, table().weight_gradient};
  if (product.in_fp32()) return rounded(linear_weight_gradient(widened(dy), widened(x)), dy);
  if (product.by_gemm()) return product.run_gemm({});
  if (product.in(Library::OneDnn)) return onednn_linear(transposed(dy), x.t(), {});
  return at::mm(dy.t(), x);
}

}  // namespace trireme::inline v0::tensor
