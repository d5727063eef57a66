#include "trireme/layers/tensor/regions.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <memory>
#include <set>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/layers/shares.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/functions/implementations.h"
#include "trireme/tensor/functions/second_derivative.h"

namespace trireme::inline v0::parallel {
namespace {

using comm::Communicator;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

at::Tensor summed(const at::Tensor& x, Communicator& group, ReduceOp op, const char* label) {
  const at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
  tensor::wait_for(group.all_reduce(tensor::to_buffer(sum), op, {.label = label}), sum.device());
  return sum;
}

// [B, T/N, C] of every rank -> [B, T, C].
at::Tensor gathered(const at::Tensor& x, Communicator& group) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), group.size());
  const at::Tensor parts = at::empty(sizes, x.options());  // [N, B, T/N, C]
  tensor::wait_for(group.all_gather(tensor::to_buffer(x.contiguous()), tensor::to_buffer(parts),
                                    {.label = "gather sequence"}),
                   parts.device());
  return parts.transpose(0, 1).flatten(1, 2);  // a copy, unless B = 1
}

at::Tensor local_part_of_sum(const at::Tensor& x, Communicator& group) {
  const std::int64_t length = x.size(1) / group.size();
  const at::Tensor parts =
      x.unflatten(1, {group.size(), length}).transpose(0, 1).contiguous();  // [N, B, T/N, C]
  const at::Tensor own = at::empty_like(parts[0]);
  tensor::wait_for(group.reduce_scatter(tensor::to_buffer(parts), tensor::to_buffer(own),
                                        ReduceOp::Sum, {.label = "scatter sequence"}),
                   own.device());
  return own;
}

// The operation of a region in forward or in backward.
using Way = at::Tensor (*)(const at::Tensor&, Communicator&);

at::Tensor pass_on(const at::Tensor& x, Communicator&) { return x; }
at::Tensor add_up(const at::Tensor& x, Communicator& group) {
  return summed(x, group, ReduceOp::Sum, "tensor parallel");
}

template <Way kForward, Way kBackward>
class Region : public torch::autograd::Function<Region<kForward, kBackward>> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, Communicator* group) {
    ctx->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
    const at::Tensor y = kForward(x, *group);
    return y.is_same(x) ? x.view_as(x) : y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    tensor::refuse_second_derivative();
    auto* group = reinterpret_cast<Communicator*>(ctx->saved_data["group"].toInt());
    return {kBackward(gradients[0], *group), Variable()};
  }
};

template <Way kForward, Way kBackward>
at::Tensor region(const at::Tensor& x, Communicator& group) {
  return group.size() == 1 ? x : Region<kForward, kBackward>::apply(x, &group);
}

}  // namespace

at::Tensor enter_cut(const at::Tensor& x, Communicator& group) {
  return region<pass_on, add_up>(x, group);
}
at::Tensor leave_cut(const at::Tensor& x, Communicator& group) {
  return region<add_up, pass_on>(x, group);
}
at::Tensor gather_sequence(const at::Tensor& x, Communicator& group) {
  return region<gathered, local_part_of_sum>(x, group);
}
at::Tensor scatter_sum(const at::Tensor& x, Communicator& group) {
  check_sequence_share(x.size(1), group.size());
  return region<local_part_of_sum, gathered>(x, group);
}

at::Tensor gather_last(const at::Tensor& x, std::int64_t whole, Communicator& group) {
  if (group.size() == 1) return x;
  // Parts may differ by a column, so each is sent transposed, as rows.
  const at::Tensor rows = x.flatten(0, -2).t().contiguous();
  const at::Tensor all = at::empty({whole, rows.size(1)}, x.options());
  std::vector<std::size_t> counts;
  for (std::int64_t rank = 0; rank < group.size(); ++rank) {
    const std::int64_t columns = whole * (rank + 1) / group.size() - whole * rank / group.size();
    counts.push_back(static_cast<std::size_t>(columns * rows.size(1)));
  }
  tensor::wait_for(group.all_gather_v(tensor::to_buffer(rows), tensor::to_buffer(all), counts,
                                      {.label = "gather logits"}),
                   all.device());
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = whole;
  return all.t().contiguous().view(sizes);
}

namespace {

// The mark of cut logits, at the node that made them: what is computed from them has it behind it.
struct CutLogits final : torch::autograd::FunctionPreHook {
  explicit CutLogits(std::int64_t own_columns) : columns(own_columns) {}
  variable_list operator()(const variable_list& gradients) override { return gradients; }
  const std::int64_t columns;
};

// Softmax minus one-hot, from what forward saved. Logits may be infinite where they do not count:
// masks, not products with 0, leave them out.
class CutCrossEntropy : public torch::autograd::Function<CutCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits,
                            const at::Tensor& targets, std::int64_t begin, Communicator* group) {
    const auto wide = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor rows = logits.flatten(0, -2).to(wide);  // [tokens, V/N]
    const at::Tensor ids = targets.flatten();
    const at::Tensor highest =
        summed(std::get<0>(rows.max(1)), *group, ReduceOp::Max, "logits' maximum");
    const at::Tensor exponents = (rows - highest.unsqueeze(1)).exp();
    const at::Tensor columns = ids - begin;
    const at::Tensor here = columns.ge(0).logical_and(columns.lt(rows.size(1)));
    const at::Tensor own = columns.clamp(0, rows.size(1) - 1).unsqueeze(1);
    // The sum of exponents and the target's logit, which one rank has.
    const at::Tensor both =
        summed(at::stack({exponents.sum(1),
                          rows.gather(1, own).squeeze(1).masked_fill(here.logical_not(), 0)}),
               *group, ReduceOp::Sum, "logits' sums");
    const at::Tensor ignored = ids.lt(0);
    const at::Tensor loss = (both[0].log() + highest - both[1]).masked_fill(ignored, 0).sum();
    ctx->save_for_backward({exponents / both[0].unsqueeze(1), own, here, ignored});
    ctx->saved_data["sizes"] = logits.sizes();
    ctx->saved_data["type"] = static_cast<std::int64_t>(logits.scalar_type());
    return loss;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    tensor::refuse_second_derivative();
    const auto saved = ctx->get_saved_variables();
    at::Tensor slope = saved[0].clone();
    slope.scatter_add_(1, saved[1], -saved[2].to(slope.scalar_type()).unsqueeze(1));
    slope.mul_(gradients[0]).masked_fill_(saved[3].unsqueeze(1), 0);
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
    return {slope.to(type).view(ctx->saved_data["sizes"].toIntVector()), Variable(), Variable(),
            Variable()};
  }
};

}  // namespace

void mark_cut_logits(const at::Tensor& own) {
  const auto mark = [columns = own.size(-1)](const at::TensorBase& one) {
    if (const auto& node = one.grad_fn()) node->add_pre_hook(std::make_unique<CutLogits>(columns));
  };
  mark(own);
  if (own.is_view()) mark(own._base());  // a change of a view in place goes on from the base's node
}

bool comes_from_cut_logits(const at::Tensor& x) {
  if (x.dim() == 0) return false;
  std::set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open = {x.grad_fn().get()};
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    for (const auto& hook : node->pre_hooks())
      if (const auto* const mark = dynamic_cast<const CutLogits*>(hook.get());
          mark != nullptr && mark->columns == x.size(-1))
        return true;
    for (const torch::autograd::Edge& edge : node->next_edges())
      open.push_back(edge.function.get());
  }
  return false;
}

at::Tensor cut_cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets,
                                 std::int64_t begin, std::int64_t whole, Communicator& group) {
  tensor::check_targets(logits, targets);
  const std::int64_t most = targets.numel() > 0 ? targets.max().item<std::int64_t>() : -1;
  if (most >= whole)
    throw ConfigError(
        "target " + std::to_string(most) + " is outside the vocabulary of " + std::to_string(whole),
        {.operation = "cross_entropy",
         .advice = "The tokenizer and the model's vocabulary must agree."});
  return CutCrossEntropy::apply(logits, targets, begin, &group);
}

}  // namespace trireme::inline v0::parallel
