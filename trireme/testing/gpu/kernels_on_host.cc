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
using Kernels = std::map<std::string, KernelOnHost, std::less<>>;

// Arrays of constant elements are read, all others are written.
template <class T>
void visit_array(const VisitArray& visit, T*& array, std::size_t count, std::size_t size) {
  if (array == nullptr || count == 0) return;
  void* at = const_cast<void*>(static_cast<const void*>(array));
  visit(at, count * size, !std::is_const_v<T>);
  array = static_cast<T*>(at);
}
template <class... T>
void visit_arrays(const VisitArray& visit, std::size_t count, T*&... arrays) {
  (visit_array(visit, arrays, count, sizeof(T)), ...);
}

template <FoldOp kOp, class T>
void fold_all(const void* given) {
  const auto& arguments = *static_cast<const FoldArguments*>(given);
  for (std::uint64_t i = 0; i < arguments.count; ++i) fold_element<kOp, T>(arguments, i);
}

template <class T>
void arrays_of_fold(void* given, const VisitArray& visit) {
  auto& arguments = *static_cast<FoldArguments*>(given);
  for (std::uint32_t k = 0; k < arguments.num_operands; ++k)
    visit_array(visit, arguments.in[k], arguments.count, sizeof(T));
  visit_array(visit, arguments.out, arguments.count, sizeof(T));
}

template <FoldOp kOp, class T>
KernelOnHost fold() {
  return {sizeof(FoldArguments), fold_all<kOp, T>, arrays_of_fold<T>};
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
void arrays_of_update(void* given, const VisitArray& visit) {
  auto& arguments = *static_cast<UpdateArguments*>(given);
  for (std::uint32_t i = 0; i < arguments.num_slices; ++i)
    for (void*& array : arguments.slices[i].arrays)
      visit_array(visit, array, arguments.slices[i].count, sizeof(T));
}

template <class T>
KernelOnHost update() {
  return {sizeof(UpdateArguments), update_all<T>, arrays_of_update<T>};
}

template <class T>
void each_array(kernel::NormForward<T>& call, const VisitArray& visit) {
  visit_arrays(visit, call.rows * call.width, call.x, call.update, call.h, call.y);
  visit_arrays(visit, call.width, call.weight, call.bias);
  visit_arrays(visit, call.rows, call.mean, call.rstd);
}
template <class T>
void each_array(kernel::NormBackward<T>& call, const VisitArray& visit) {
  visit_arrays(visit, call.rows * call.width, call.dy, call.dstream, call.h, call.dx, call.dupdate);
  visit_arrays(visit, call.width, call.weight);
  visit_arrays(visit, call.rows, call.mean, call.rstd);
  visit_arrays(visit, num_norm_sums(call.rows) * call.width, call.dweight, call.dbias);
}
template <class T>
void each_array(LossRows<T>& call, const VisitArray& visit) {
  visit_arrays(visit, call.rows * call.pitch, call.logits, call.dlogits);
  visit_arrays(visit, call.rows, call.targets, call.logsumexp, call.losses);
  visit_arrays(visit, 1, call.scale);
}
template <class T>
void each_array(MaskArguments<T>& mask, const VisitArray& visit) {
  visit_arrays(visit, mask.count, mask.out);
  visit_arrays(visit, 2, mask.stream_words);
}
template <class T>
void each_array(LeafArguments<T>& call, const VisitArray& visit) {
  visit_arrays(visit, call.count, call.gradient, call.out);
  for (std::uint32_t k = 0; k < call.num_open; ++k) visit_arrays(visit, call.count, call.open[k]);
  visit_arrays(visit, 1, call.not_finite);
}
template <class T>
void each_array(SquaresArguments<T>& call, const VisitArray& visit) {
  visit_arrays(visit, call.count, call.values);
  visit_arrays(visit, num_chunks(call), call.sums);
}

// kShare: the work of one thread or warp.
template <class Arguments, auto kShare>
KernelOnHost by_shares() {
  return {sizeof(Arguments),
          [](const void* given) {
            constexpr std::size_t kShares = 7;
            for (std::size_t share = 0; share < kShares; ++share)
              kShare(*static_cast<const Arguments*>(given), share, kShares);
          },
          [](void* given, const VisitArray& visit) {
            each_array(*static_cast<Arguments*>(given), visit);
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
