#include "trireme/tensor/products/kernel_table.h"

#include <cstdlib>

#include "trireme/base/check.h"
#include "trireme/base/config/config.h"
#include "trireme/base/error.h"
#include "trireme/tensor/products/gemm.h"

namespace trireme::inline v0::tensor {
namespace {

KernelTable chosen() {
  KernelTable table = kernel_table(kernel::vendor(), kernel::isa(), kernel::has_bf16_products());
  const char* text = std::getenv("TRIREME_GEMM");
  const std::string_view named = text != nullptr ? text : "";
  if (named == "onednn")
    table.forward = table.input_gradient = table.weight_gradient = table.small = Library::OneDnn;
  if (named == "blas") {
    table.forward = table.input_gradient = table.weight_gradient = table.small = Library::Aten;
    table.attention = Library::Blas;
  }
  return table;
}

KernelTable& current_table() {
  static KernelTable table = chosen();
  return table;
}

struct Column {
  const char* name;
  Library KernelTable::*member;
  std::vector<std::string> choices;
  const char* meaning;
};
const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"forward", &KernelTable::forward, {"aten", "onednn"}, "Linear layers forward, fp32."},
      {"input_gradient", &KernelTable::input_gradient, {"aten", "onednn"}, "Their input gradient."},
      {"weight_gradient",
       &KernelTable::weight_gradient,
       {"aten", "onednn"},
       "Their weight gradient."},
      {"small",
       &KernelTable::small,
       {"aten", "onednn", "own"},
       "These three, up to 4 million multiply-adds."},
      {"linear_bf16",
       &KernelTable::linear_bf16,
       {"aten", "widened"},
       "Linear layers and convolutions, bf16."},
      {"small_bf16",
       &KernelTable::small_bf16,
       {"aten", "own", "widened"},
       "Linear layers in bf16, up to 4 million multiply-adds."},
      {"attention", &KernelTable::attention, {"blas", "own"}, "Products of a head, fp32."},
      {"attention_bf16",
       &KernelTable::attention_bf16,
       {"blas", "own", "widened"},
       "Products of a head, bf16."}};
  return all;
}

Library library_of(std::string_view name) {
  for (Library library :
       {Library::Aten, Library::OneDnn, Library::Blas, Library::Own, Library::Widened})
    if (name_of(library) == name) return library;
  TRIREME_CHECK(false);
  return Library::Aten;
}

config::Schema file_schema() {
  config::Schema schema;
  schema.add({"isa", std::string("generic"), "The instruction set that it was measured with."});
  for (const Column& column : columns())
    schema.add({column.name, column.choices.front(), column.meaning, 0, 0, column.choices});
  return schema;
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

// Intel: MKL is near the peak in fp32 (oneDNN 5-25 % below it) and uses AMX for bf16. AMD with
// AVX-512: MKL uses half of the vector width only; oneDNN and our own kernels use all of it. AMD
// with AVX2: MKL uses all of it, too, and oneDNN is 5-35 % below it. Others: not measured.
//
// x86 without AVX512-BF16: oneDNN emulates bf16 with AVX-512, at a sixth of fp32's speed. Without that
// LibTorch gives it none, and its own loops reach a tenth.
KernelTable kernel_table(kernel::Vendor vendor, kernel::Isa isa, bool bf16_products) noexcept {
  using enum Library;
  if (vendor == kernel::Vendor::Amd && isa == kernel::Isa::Avx512) {
    return {.forward = OneDnn,
            .input_gradient = OneDnn,
            .weight_gradient = OneDnn,
            .linear_bf16 = bf16_products ? Aten : Widened,
            .small = Own,
            .small_bf16 = bf16_products ? Own : Widened,
            .attention = Own,
            .attention_bf16 = bf16_products ? Own : Widened};
  }
  const bool amx = vendor == kernel::Vendor::Intel && bf16_products;
  const bool other = vendor == kernel::Vendor::Other && isa == kernel::Isa::Generic;  // not x86
  const Library bf16 = (isa == kernel::Isa::Avx512 && bf16_products) || other ? Aten : Widened;
  return {.forward = Aten,
          .input_gradient = Aten,
          .weight_gradient = Aten,
          .linear_bf16 = bf16,
          .small = Aten,
          .small_bf16 = bf16,
          .attention = Blas,
          .attention_bf16 = amx ? Blas : Widened};
}

bool usable(const KernelTable& table, std::string* why) {
  const auto lacks = [why](const std::string& what) {
    if (why != nullptr) *why = what;
    return false;
  };
  for (const auto& [column, name] : {std::pair{&KernelTable::small_bf16, "small_bf16"},
                                     {&KernelTable::attention_bf16, "attention_bf16"}})
    if (table.*column == Library::Own && !kernel::has_bf16_products())
      return lacks(std::string(name) + " = \"own\" needs AVX512-BF16");
  if (table.attention_bf16 == Library::Blas && !blas_multiplies_bf16())
    return lacks("attention_bf16 = \"blas\" needs a LibTorch with MKL");
  return true;
}

const KernelTable& kernel_table() { return current_table(); }

void use_kernel_table(const KernelTable& table) {
  std::string why;
  if (!usable(table, &why)) {
    throw ConfigError("a kernel table that this processor cannot run: " + why,
                      {.operation = "kernel table",
                       .advice = "Write one here with `trireme doctor --tune FILE`."});
  }
  current_table() = table;
}

std::string to_toml(const KernelTable& table) {
  std::string text = "isa = \"" + std::string(kernel::name_of(kernel::isa())) + "\"\n";
  for (const Column& column : columns())
    text +=
        std::string(column.name) + " = \"" + std::string(name_of(table.*column.member)) + "\"\n";
  return text;
}

KernelTable read_kernel_table(const std::string& path) {
  config::Config file(file_schema());
  file.read_file(path);
  const std::string_view isa = kernel::name_of(kernel::isa());
  std::string why = "it is for " + file.text("isa") + ", this process uses " + std::string(isa);
  KernelTable table{};
  for (const Column& column : columns()) table.*column.member = library_of(file.text(column.name));
  if (file.text("isa") != isa || !usable(table, &why)) {
    throw ConfigError("the kernel table " + path + " is not for this processor: " + why,
                      {.operation = "kernel table",
                       .advice = "Write one here with `trireme doctor --tune FILE`."});
  }
  return table;
}

std::string describe(const KernelTable& table) {
  const auto name = [](Library library) { return std::string(name_of(library)); };
  return "kernels " + std::string(kernel::name_of(kernel::isa())) + ", fp32 " +
         name(table.forward) + " " + name(table.input_gradient) + " " +
         name(table.weight_gradient) + " (forward, input gradient, weight gradient), " +
         name(table.small) + " if small, bf16 " + name(table.linear_bf16) + ", " +
         name(table.small_bf16) + " if small, attention " + name(table.attention) + ", in bf16 " +
         name(table.attention_bf16);
}

}  // namespace trireme::inline v0::tensor
