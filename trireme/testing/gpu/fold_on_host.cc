#include "trireme/testing/gpu/fold_on_host.h"

#include <functional>
#include <map>
#include <string>

namespace trireme::inline v0::testing {
namespace {

using namespace kernel::cuda;

template <FoldOp kOp, class T>
void fold_all(const FoldArguments& arguments) {
  for (std::uint64_t i = 0; i < arguments.count; ++i) fold_element<kOp, T>(arguments, i);
}

template <FoldOp kOp>
void add(std::map<std::string, FoldOnHost, std::less<>>& all, const std::string& op) {
  const std::string name = "trireme_fold_" + op + "_";
  all[name + "f64"] = fold_all<kOp, double>;
  all[name + "f32"] = fold_all<kOp, float>;
  all[name + "bf16"] = fold_all<kOp, kernel::cuda::BFloat16>;
  all[name + "f16"] = fold_all<kOp, kernel::cuda::Float16>;
  all[name + "i64"] = fold_all<kOp, std::uint64_t>;
  all[name + "i32"] = fold_all<kOp, std::uint32_t>;
  all[name + "u8"] = fold_all<kOp, std::uint8_t>;
}

}  // namespace

FoldOnHost fold_on_host(std::string_view kernel_name) {
  static const auto all = [] {
    std::map<std::string, FoldOnHost, std::less<>> made;
    add<FoldSum>(made, "sum");
    add<FoldMin>(made, "min");
    add<FoldMax>(made, "max");
    add<FoldProduct>(made, "product");
    return made;
  }();
  const auto found = all.find(kernel_name);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace trireme::inline v0::testing
