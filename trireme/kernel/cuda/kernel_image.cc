#include "trireme/kernel/cuda/kernel_image.h"

#include <algorithm>
#include <cctype>

#include "trireme/base/check.h"
#include "trireme/kernel/cuda/fold.h"

#ifdef TRIREME_KERNEL_IMAGE
// clang-format off
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".local trireme_kernel_image\n"
    "trireme_kernel_image:\n"
    ".incbin \"" TRIREME_KERNEL_IMAGE "\"\n"
    ".local trireme_kernel_image_end\n"
    "trireme_kernel_image_end:\n"
    ".byte 0\n"
    ".popsection\n");
// clang-format on
extern "C" const std::byte trireme_kernel_image[], trireme_kernel_image_end[];
#endif

namespace trireme::inline v0::kernel {
namespace cuda {

std::span<const std::byte> kernel_image() noexcept {
#ifdef TRIREME_KERNEL_IMAGE
  return {trireme_kernel_image, trireme_kernel_image_end};
#else
  return {};
#endif
}

std::string kernel_image_origin() {
#ifdef TRIREME_KERNEL_ORIGIN
  return TRIREME_KERNEL_ORIGIN;
#else
  return "no CUDA";
#endif
}

std::string kernel_name(std::string_view what, DType dtype) {
  std::string name =
      std::string("trireme_") + std::string(what) + "_" + std::string(name_of(dtype));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return name;
}

std::string fold_kernel_name(Combine op, DType dtype) {
  static_assert(int(FoldSum) == int(Combine::Sum) && int(FoldProduct) == int(Combine::Product));
  TRIREME_CHECK(can_combine(dtype));
  constexpr const char* kNames[] = {"fold_sum", "fold_min", "fold_max", "fold_product"};
  return kernel_name(kNames[static_cast<int>(op)], dtype);
}

// fold_steps() merges two siblings as soon as they are neighbours, so a stack of slots reproduces
// the order of the steps.
std::vector<std::uint8_t> merge_counts(std::span<const FoldStep> steps, std::size_t num_operands) {
  std::vector<std::uint8_t> counts(num_operands);
  std::vector<std::size_t> open;
  std::size_t done = 0;
  for (std::size_t operand = 0; operand < num_operands; ++operand) {
    open.push_back(operand);
    while (done < steps.size() && open.size() > 1 && steps[done].right == open.back() &&
           steps[done].left == open[open.size() - 2]) {
      open.pop_back();
      ++counts[operand];
      ++done;
    }
    TRIREME_CHECK(open.size() <= std::size_t(kMostOpen));
  }
  TRIREME_CHECK(done == steps.size());
  TRIREME_CHECK(open.size() == 1u);
  return counts;
}

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
