// Matrix products on raw memory and on tensors, each by the library that kernel_table.h names for
// it. Row-major. Thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/buffer.h"
#include "trireme/kernel/transformer.h"

namespace trireme::inline v0::tensor {

/// How fp32 products are computed. Bf16: both operands are rounded to bf16, products are summed in
/// fp32, and the result is fp32, as with torch.set_float32_matmul_precision("medium"), but on every
/// processor, by our own kernels or the BLAS. Set it for the whole process, before the first
/// product.
enum class Products : std::uint8_t { Fp32, Bf16 };
void set_fp32_products(Products products) noexcept;
Products fp32_products() noexcept;

enum class Form : std::uint8_t { Plain, Transposed };

/// One operand: its first element and the distance between its stored rows.
template <class T>
struct Operand {
  const T* data;
  std::int64_t stride;
  Form form = Form::Plain;
};
/// c [m, n] (rows `c_stride` apart) = op(a) [m, k] op(b) [k, n] + (accumulate ? c : 0). bf16 and
/// fp16 operands are summed in fp32.
template <class T>
struct Gemm {
  std::int64_t m, n, k;
  Operand<T> a, b;
  kernel::Stat<T>* c;
  std::int64_t c_stride;
  bool accumulate = false;
};
void gemm(const Gemm<float>& product);
void gemm(const Gemm<double>& product);
void gemm(const Gemm<BFloat16>& product);
void gemm(const Gemm<Float16>& product);

/// Whether LibTorch's BLAS multiplies bf16 (MKL does).
bool blas_multiplies_bf16() noexcept;

/// x [m, in] weight [out, in]^T + bias: the forward product of a linear layer. In fp16 (also below)
/// the operands are converted to fp32, which is exact, multiplied by fp32's library and rounded
/// once: few processors multiply fp16, and those that do would round differently in LibTorch. bf16
/// is treated alike where the kernel table says Widened.
at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
/// dy [m, out] weight [out, in].
at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight);
/// dy^T x: [out, in].
at::Tensor linear_weight_gradient(const at::Tensor& dy, const at::Tensor& x);

}  // namespace trireme::inline v0::tensor
