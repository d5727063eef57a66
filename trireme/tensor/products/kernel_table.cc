#include "trireme/tensor/products/kernel_table.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <iterator>

#include "trireme/base/check.h"
#include "trireme/base/config/config.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/joined.h"
#include "trireme/tensor/products/gemm.h"

namespace trireme::inline v0::tensor {
namespace {

// The variable's value, or nothing; ConfigError if it is not one of `known`.
std::string_view variable(const char* name, std::initializer_list<std::string_view> known) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return {};
  const auto* const found = std::ranges::find(known, std::string_view(value));
  if (found != known.end()) return *found;
  throw ConfigError(std::string("the environment variable ") + name + " is \"" + value + "\"",
                    {.operation = "kernel table",
                     .advice = "Unset it, or choose one of: " + joined(known) + "."});
}

KernelTable& current_table() {
  static KernelTable table = table_by_environment();
  return table;
}

constexpr std::string_view kLibraries[] = {"aten", "onednn", "blas", "own", "widened"};

Library library_of(std::string_view name) {
  const auto* const found = std::find(std::begin(kLibraries), std::end(kLibraries), name);
  TRIREME_CHECK(found != std::end(kLibraries));
  return static_cast<Library>(found - std::begin(kLibraries));
}

config::Schema file_schema() {
  config::Schema schema;
  schema.add({"isa", std::string("generic"), "The instruction set that it was measured with."});
  for (const KernelColumn& column : kernel_columns()) {
    std::vector<std::string> names;
    for (const Library library : column.choices) names.emplace_back(name_of(library));
    schema.add({column.name, names.front(), column.meaning, 0, 0, names});
  }
  return schema;
}

}  // namespace

std::string_view name_of(Library library) noexcept {
  return kLibraries[static_cast<std::size_t>(library)];
}

const std::vector<KernelColumn>& kernel_columns() {
  using enum Library;
  using Table = KernelTable;
  static const std::vector<KernelColumn> columns = {
      {"forward", &Table::forward, {Aten, OneDnn}, "Linear layers forward, fp32."},
      {"input_gradient", &Table::input_gradient, {Aten, OneDnn}, "Their input gradient."},
      {"weight_gradient", &Table::weight_gradient, {Aten, OneDnn}, "Their weight gradient."},
      {"small", &Table::small, {Aten, OneDnn, Own}, "These three, up to 4 million multiply-adds."},
      {"linear_bf16",
       &Table::linear_bf16,
       {Aten, Widened},
       "Linear layers and convolutions, bf16."},
      {"small_bf16",
       &Table::small_bf16,
       {Aten, Own, Widened},
       "Linear layers in bf16, up to 4 million multiply-adds."},
      {"attention", &Table::attention, {Blas, Own}, "Products of a head, fp32."},
      {"attention_bf16",
       &Table::attention_bf16,
       {Blas, Own, Widened},
       "Products of a head, bf16."}};
  return columns;
}

// Intel: MKL is near the peak in fp32 (oneDNN 5-25 % below it) and uses AMX for bf16. AMD with
// AVX-512: MKL uses half of the vector width only; oneDNN and our own kernels use all of it. AMD
// with AVX2: MKL uses all of it, too, and oneDNN is 5-35 % below it. Others: not measured.
//
// x86 without AVX512-BF16: oneDNN emulates bf16 with AVX-512, at a sixth of fp32's speed. Without
// AVX-512 LibTorch does not call oneDNN for bf16, and LibTorch's own loops reach a tenth.
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

KernelTable table_by_environment() {
  using kernel::Isa;
  variable("TRIREME_ISA", {kernel::name_of(Isa::Generic), kernel::name_of(Isa::Avx2),
                           kernel::name_of(Isa::Avx512)});
  KernelTable table = kernel_table(kernel::vendor(), kernel::isa(), kernel::has_bf16_products());
  const std::string_view named = variable("TRIREME_GEMM", {"onednn", "blas"});
  if (named == "onednn")
    table.forward = table.input_gradient = table.weight_gradient = table.small = Library::OneDnn;
  if (named == "blas") {
    table.forward = table.input_gradient = table.weight_gradient = table.small = Library::Aten;
    table.attention = Library::Blas;
  }
  return table;
}

const KernelTable& kernel_table() { return current_table(); }

void use_kernel_table(const KernelTable& table) {
  std::string why;
  if (!usable(table, &why)) {
    throw ConfigError("this processor cannot use the kernel table: " + why,
                      {.operation = "kernel table",
                       .advice = "Write one here with `trireme doctor --tune FILE`."});
  }
  current_table() = table;
}

std::string to_toml(const KernelTable& table) {
  std::string text = "isa = \"" + std::string(kernel::name_of(kernel::isa())) + "\"\n";
  for (const KernelColumn& column : kernel_columns())
    text +=
        std::string(column.name) + " = \"" + std::string(name_of(table.*column.member)) + "\"\n";
  return text;
}

KernelTable read_kernel_table(const std::string& path) {
  config::Config file(file_schema());
  file.read_text(
      read_file(path, "the kernel table ",
                {.operation = "kernel table",
                 .advice = "Write one with `trireme doctor --tune FILE`, or leave it out."}),
      path);
  const std::string_view isa = kernel::name_of(kernel::isa());
  std::string why = "it is for " + file.text("isa") + ", this process uses " + std::string(isa);
  KernelTable table{};
  for (const KernelColumn& column : kernel_columns())
    table.*column.member = library_of(file.text(column.name));
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
