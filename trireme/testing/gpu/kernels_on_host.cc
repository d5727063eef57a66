#include "trireme/testing/gpu/kernels_on_host.h"

#include <map>
#include <string>

#include "trireme/kernel/cuda/cross_entropy.h"
#include "trireme/kernel/cuda/dropout.h"
#include "trireme/kernel/cuda/flat.h"
#include "trireme/kernel/cuda/fold.h"
#include "trireme/kernel/cuda/norm.h"
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
  all[name + "bf16"] = fold<kOp, BFloat16>();
  all[name + "f16"] = fold<kOp, Float16>();
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

// Null pointers are arrays that a call has not.
void touch_all(const Touch& touch, std::initializer_list<const void*> arrays, std::size_t bytes) {
  for (const void* const array : arrays)
    if (array != nullptr && bytes > 0) touch(array, bytes);
}

template <class T>
void touches_of(const kernel::NormForward<T>& call, const Touch& touch) {
  const std::size_t count = call.rows * call.width;
  touch_all(touch, {call.x, call.h}, count * sizeof(float));
  touch_all(touch, {call.update, call.y}, count * sizeof(T));
  touch_all(touch, {call.weight, call.bias}, call.width * sizeof(float));
  touch_all(touch, {call.mean, call.rstd}, call.rows * sizeof(float));
}
template <class T>
void touches_of(const kernel::NormBackward<T>& call, const Touch& touch) {
  const std::size_t count = call.rows * call.width;
  touch_all(touch, {call.dstream, call.h, call.dx}, count * sizeof(float));
  touch_all(touch, {call.dy, call.dupdate}, count * sizeof(T));
  touch_all(touch, {call.weight}, call.width * sizeof(float));
  touch_all(touch, {call.mean, call.rstd}, call.rows * sizeof(float));
  touch_all(touch, {call.dweight, call.dbias},
            num_norm_sums(call.rows) * call.width * sizeof(float));
}
template <class T>
void touches_of(const LossRows<T>& call, const Touch& touch) {
  touch_all(touch, {call.logits, call.dlogits}, call.rows * call.pitch * sizeof(T));
  touch_all(touch, {call.targets}, call.rows * sizeof(std::int64_t));
  touch_all(touch, {call.logsumexp, call.losses}, call.rows * sizeof(float));
  touch_all(touch, {call.scale}, sizeof(float));
}
template <class T>
void touches_of(const MaskArguments<T>& mask, const Touch& touch) {
  touch_all(touch, {mask.out}, mask.count * sizeof(T));
  touch_all(touch, {mask.stream_words}, 2 * sizeof(std::int64_t));
}
template <class T>
void touches_of(const LeafArguments<T>& call, const Touch& touch) {
  touch_all(touch, {call.gradient}, call.count * sizeof(T));
  touch_all(touch, {call.out}, call.count * sizeof(*call.out));
  for (std::uint32_t k = 0; k < call.num_open; ++k)
    touch_all(touch, {call.open[k]}, call.count * sizeof(*call.out));
  touch_all(touch, {call.not_finite}, 1);
}
template <class T>
void touches_of(const SquaresArguments<T>& call, const Touch& touch) {
  touch_all(touch, {call.values}, call.count * sizeof(T));
  touch_all(touch, {call.sums}, num_chunks(call) * sizeof(double));
}

// kShare: what one of some threads or warps does.
template <class Arguments, auto kShare>
KernelOnHost by_shares() {
  return {sizeof(Arguments),
          [](const void* given) {
            constexpr std::size_t kShares = 7;
            for (std::size_t share = 0; share < kShares; ++share)
              kShare(*static_cast<const Arguments*>(given), share, kShares);
          },
          [](const void* given, const Touch& touch) {
            touches_of(*static_cast<const Arguments*>(given), touch);
          }};
}

template <class T>
void add_rows(Kernels& all, const std::string& type) {
  using Forward = kernel::NormForward<T>;
  using Backward = kernel::NormBackward<T>;
  all["trireme_norm_forward_" + type] = by_shares<Forward, norm_share<T>>();
  all["trireme_norm_backward_" + type] = by_shares<Backward, norm_backward_share<T>>();
  all["trireme_norm_columns_" + type] = by_shares<Backward, norm_columns_share<T>>();
  all["trireme_loss_forward_" + type] = by_shares<LossRows<T>, loss_share<T>>();
  all["trireme_loss_backward_" + type] = by_shares<LossRows<T>, loss_backward_share<T>>();
}
template <class T>
void add_flat(Kernels& all, const std::string& type) {
  all["trireme_mask_" + type] = by_shares<MaskArguments<T>, mask_share<T>>();
  all["trireme_leaf_" + type] = by_shares<LeafArguments<T>, leaf_share<T>>();
}
template <class T>
void add_squares(Kernels& all, const std::string& type) {
  all["trireme_squares_" + type] = by_shares<SquaresArguments<T>, squares_share<T>>();
}

}  // namespace

const KernelOnHost* kernel_on_host(std::string_view name) {
  static const Kernels all = [] {
    Kernels made{{"trireme_update_f32", update<float>()}, {"trireme_update_f64", update<double>()}};
    add_folds<FoldSum>(made, "sum");
    add_folds<FoldMin>(made, "min");
    add_folds<FoldMax>(made, "max");
    add_folds<FoldProduct>(made, "product");
    add_rows<float>(made, "f32");
    add_rows<BFloat16>(made, "bf16");
    add_rows<Float16>(made, "f16");
    add_flat<double>(made, "f64");
    add_flat<float>(made, "f32");
    add_flat<BFloat16>(made, "bf16");
    add_flat<Float16>(made, "f16");
    add_squares<double>(made, "f64");
    add_squares<float>(made, "f32");
    return made;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace trireme::inline v0::testing
