#include "trireme/testing/gpu/kernels_on_host.h"

#include <map>
#include <string>

#include "trireme/kernel/cuda/fold.h"
#include "trireme/kernel/cuda/update.h"

namespace trireme::inline v0::testing {
namespace {

using namespace kernel::cuda;
using Touch = std::function<void(const void*, std::size_t)>;
using Kernels = std::map<std::string, KernelOnHost, std::less<>>;

template <FoldOp kOp, class T>
void fold_all(const void* given) {
  const auto& arguments = *static_cast<const FoldArguments*>(given);
  for (std::uint64_t i = 0; i < arguments.count; ++i) fold_element<kOp, T>(arguments, i);
}

template <class T>
void touches_of_fold(const void* given, const Touch& touch) {
  const auto& arguments = *static_cast<const FoldArguments*>(given);
  for (std::uint32_t k = 0; k < arguments.num_operands; ++k)
    touch(arguments.in[k], arguments.count * sizeof(T));
  touch(arguments.out, arguments.count * sizeof(T));
}

template <FoldOp kOp, class T>
KernelOnHost fold() {
  return {sizeof(FoldArguments), fold_all<kOp, T>, touches_of_fold<T>};
}

template <FoldOp kOp>
void add_folds(Kernels& all, const std::string& op) {
  const std::string name = "trireme_fold_" + op + "_";
  all[name + "f64"] = fold<kOp, double>();
  all[name + "f32"] = fold<kOp, float>();
  all[name + "bf16"] = fold<kOp, kernel::cuda::BFloat16>();
  all[name + "f16"] = fold<kOp, kernel::cuda::Float16>();
  all[name + "i64"] = fold<kOp, std::uint64_t>();
  all[name + "i32"] = fold<kOp, std::uint32_t>();
  all[name + "u8"] = fold<kOp, std::uint8_t>();
}

// A few blocks and threads, so that the shares are those of a GPU.
template <class T>
void update_all(const void* arguments) {
  constexpr std::uint32_t kBlocks = 3, kThreads = 5;
  for (std::uint32_t block = 0; block < kBlocks; ++block)
    for (std::uint32_t thread = 0; thread < kThreads; ++thread)
      update_share<T>(kernel::AllRules(), *static_cast<const UpdateArguments*>(arguments), block,
                      kBlocks, thread, kThreads);
}

template <class T>
void touches_of_update(const void* given, const Touch& touch) {
  const auto& arguments = *static_cast<const UpdateArguments*>(given);
  for (std::uint32_t i = 0; i < arguments.num_slices; ++i)
    for (const void* const array : arguments.slices[i].arrays)
      if (array != nullptr) touch(array, arguments.slices[i].count * sizeof(T));
}

template <class T>
KernelOnHost update() {
  return {sizeof(UpdateArguments), update_all<T>, touches_of_update<T>};
}

}  // namespace

const KernelOnHost* kernel_on_host(std::string_view name) {
  static const Kernels all = [] {
    Kernels made{{"trireme_update_f32", update<float>()}, {"trireme_update_f64", update<double>()}};
    add_folds<FoldSum>(made, "sum");
    add_folds<FoldMin>(made, "min");
    add_folds<FoldMax>(made, "max");
    add_folds<FoldProduct>(made, "product");
    return made;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace trireme::inline v0::testing
