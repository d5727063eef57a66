#include "trireme/tensor/kernel_table.h"

#include <cstdlib>

namespace trireme {
inline namespace v0 {
namespace tensor {
namespace {

KernelTable chosen() {
  KernelTable table = kernel_table(kernel::vendor(), kernel::isa(), kernel::has_bf16_products());
  const char* text = std::getenv("TRIREME_GEMM");
  const std::string_view named = text != nullptr ? text : "";
  if (named == "onednn")
    table.forward = table.input_gradient = table.weight_gradient = Library::OneDnn;
  if (named == "blas") {
    table.forward = table.input_gradient = table.weight_gradient = Library::Aten;
    table.attention = Library::Blas;
  }
  return table;
}

}  // namespace

std::string_view name_of(Library library) noexcept {
  switch (library) {
    case Library::Aten:
      return "aten";
    case Library::OneDnn:
      return "onednn";
    case Library::Blas:
      return "blas";
    case Library::Own:
      return "own";
    default:
      return "widened";
  }
}

// Intel: MKL is near the peak in fp32 (oneDNN 5-25 % below it) and knows AMX's bf16. AMD: MKL keeps
// to half of the processor's width; oneDNN and our own kernels use all of it. Others: nothing was
// measured.
KernelTable kernel_table(kernel::Vendor vendor, kernel::Isa isa, bool bf16_products) noexcept {
  using enum Library;
  if (vendor == kernel::Vendor::Amd) {
    const bool wide = isa == kernel::Isa::Avx512;
    return {.forward = OneDnn,
            .input_gradient = OneDnn,
            .weight_gradient = OneDnn,
            .attention = wide ? Own : Blas,
            .attention_bf16 = bf16_products ? Own : Widened};
  }
  const bool amx = vendor == kernel::Vendor::Intel && bf16_products;
  return {.forward = Aten,
          .input_gradient = Aten,
          .weight_gradient = Aten,
          .attention = Blas,
          .attention_bf16 = amx ? Blas : Widened};
}

const KernelTable& kernel_table() {
  static const KernelTable table = chosen();
  return table;
}

std::string describe(const KernelTable& table) {
  const auto name = [](Library library) { return std::string(name_of(library)); };
  return "kernels " + std::string(kernel::name_of(kernel::isa())) + ", fp32 " +
         name(table.forward) + " " + name(table.input_gradient) + " " +
         name(table.weight_gradient) +
         " (forward, input gradient, weight gradient), bf16 aten, "
         "attention " +
         name(table.attention) + ", in bf16 " + name(table.attention_bf16);
}

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
