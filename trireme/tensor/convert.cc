#include "trireme/tensor/convert.h"

#include <ATen/ops/from_blob.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::tensor {

namespace {

constexpr std::pair<DType, at::ScalarType> kTypes[] = {
    {DType::F64, at::kDouble}, {DType::F32, at::kFloat}, {DType::BF16, at::kBFloat16},
    {DType::F16, at::kHalf},   {DType::I64, at::kLong},  {DType::I32, at::kInt},
    {DType::I16, at::kShort},  {DType::I8, at::kChar},   {DType::U8, at::kByte},
    {DType::Bool, at::kBool}};

}  // namespace

DType dtype_of(at::ScalarType type) {
  for (const auto& [dtype, scalar] : kTypes)
    if (scalar == type) return dtype;
  throw ConfigError(
      std::string("tensors of type ") + c10::toString(type) + " cannot be communicated or saved",
      {.advice = "Convert it to a float, integer or bool type."});
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [known, scalar] : kTypes)
    if (known == dtype) return scalar;
  TRIREME_CHECK(static_cast<int>(dtype) == -1);
  return at::kFloat;
}

Buffer to_buffer(const at::Tensor& tensor) {
  TRIREME_CHECK(tensor.is_contiguous());
  return {.data = tensor.data_ptr(),
          .count = static_cast<std::size_t>(tensor.numel()),
          .dtype = dtype_of(tensor),
          .device = device_of(tensor.device()),
          .owner = std::make_shared<at::Tensor>(tensor.detach())};
}

Buffer bytes_of(const at::Tensor& tensor) {
  return {.data = tensor.data_ptr(),
          .count = tensor.nbytes(),
          .dtype = DType::U8,
          .device = device_of(tensor.device()),
          .owner = std::make_shared<at::Tensor>(tensor.detach())};
}

at::Tensor view_of(const Buffer& buffer, at::IntArrayRef sizes) {
  TRIREME_CHECK(static_cast<std::size_t>(c10::multiply_integers(sizes)) <= buffer.count);
  const at::Device device = at_device(buffer.device);
  return at::for_blob(buffer.data, sizes)
      .deleter([owner = buffer.owner](void*) {})
      .options(at::TensorOptions(device).dtype(scalar_type_of(buffer.dtype)))
      .target_device(device)
      .make_tensor();
}

at::Tensor view_of(const Buffer& buffer) {
  return view_of(buffer, {static_cast<std::int64_t>(buffer.count)});
}

at::ScalarType compute_type(std::string_view precision) {
  if (precision == "fp64") return at::kDouble;
  if (precision == "fp32") return at::kFloat;
  if (precision == "bf16") return at::kBFloat16;
  if (precision == "fp16") return at::kHalf;
  throw ConfigError("train.precision is '" + std::string(precision) + "'",
                    {.operation = "config", .advice = "Choose fp64, fp32, bf16 or fp16."});
}

}  // namespace trireme::inline v0::tensor
