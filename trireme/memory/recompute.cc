#include "trireme/memory/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/tensor/autocast.h"

namespace trireme {
inline namespace v0 {
namespace memory {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// LibTorch's default generator as it was at a moment.
class GeneratorState {
 public:
  GeneratorState()
      : generator_(at::detail::getDefaultCPUGenerator()), state_(generator_.get_state()) {}
  void restore() { generator_.set_state(state_); }

 private:
  at::Generator generator_;
  at::Tensor state_;
};

// What the second run needs of the first.
struct Rerun final : torch::CustomClassHolder {
  Forward forward;
  std::optional<GeneratorState> generator;
  bool autocast = at::autocast::is_autocast_enabled(at::kCPU);
  at::ScalarType autocast_type = at::autocast::get_autocast_dtype(at::kCPU);

  variable_list run(const variable_list& inputs) {
    const at::AutoGradMode gradients(true);
    const Autocast casts(at::kCPU, autocast_type, autocast);
    if (!generator) return forward(inputs);
    GeneratorState now;
    generator->restore();
    variable_list outputs = forward(inputs);
    now.restore();
    return outputs;
  }
};

variable_list detached(const variable_list& inputs) {
  variable_list leaves;
  for (const at::Tensor& input : inputs)
    leaves.push_back(input.defined() ? input.detach().requires_grad_(input.requires_grad())
                                     : at::Tensor());
  return leaves;
}

class RecomputeFunction : public torch::autograd::Function<RecomputeFunction> {
 public:
  // `anchor` requires grad, so that there is a backward where the inputs alone would ask for none:
  // the leaves that `forward` uses are not among them.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& anchor,
                               const c10::intrusive_ptr<Rerun>& rerun, at::TensorList inputs) {
    (void)anchor;
    ctx->save_for_backward(inputs.vec());
    ctx->saved_data["rerun"] = c10::IValue::make_capsule(rerun);
    return rerun->forward(inputs.vec());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list leaves = detached(ctx->get_saved_variables());
    const auto capsule = ctx->saved_data["rerun"].toCapsule();
    const variable_list outputs = static_cast<Rerun*>(capsule.get())->run(leaves);
    TRIREME_CHECK(outputs.size() == gradients.size());
    variable_list roots, root_gradients;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined() || !outputs[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[i]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
    variable_list result = {Variable(), Variable()};  // of the anchor and of `rerun`
    for (const at::Tensor& leaf : leaves)
      result.push_back(leaf.defined() && leaf.requires_grad() ? leaf.grad() : at::Tensor());
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> recompute(const Forward& forward, const std::vector<at::Tensor>& inputs,
                                  Draws draws) {
  if (!at::GradMode::is_enabled()) return forward(inputs);
  const auto rerun = c10::make_intrusive<Rerun>();
  rerun->forward = forward;
  if (draws == Draws::Again) rerun->generator.emplace();
  const at::Tensor anchor = at::empty({0}, at::kFloat).requires_grad_(true);
  return RecomputeFunction::apply(anchor, rerun, at::TensorList(inputs));
}

at::Tensor recompute(const std::function<at::Tensor(const at::Tensor&)>& forward,
                     const at::Tensor& input) {
  const Forward many = [forward](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{forward(inputs.front())};
  };
  return recompute(many, {input}).front();
}

RecomputePolicy parse_recompute(const std::string& text) {
  const std::string prefix = "every-";
  if (text == "none") return {};
  if (text == "selective") return {.attention = true};
  if (text == "full") return {.every = 1};
  std::size_t every = 0;
  if (text.starts_with(prefix)) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + prefix.size(), end, every);
    if (read.ec == std::errc() && read.ptr == end && every > 0) return {.every = every};
  }
  throw ConfigError("memory.recompute = \"" + text + "\"",
                    {.operation = "config",
                     .label = "memory.recompute",
                     .advice = "Use none, selective, full or every-K, such as every-2."});
}

// The last block's go first in the backward pass, before any other comes back.
std::int64_t peak_activations(const std::vector<models::BlockActivations>& blocks,
                              const RecomputePolicy& policy) {
  std::int64_t kept = 0, once = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const bool last = i + 1 == blocks.size();
    const std::int64_t whole = blocks[i].kept - (policy.attention ? blocks[i].probabilities : 0);
    if (policy.runs_again(i, blocks.size())) {
      kept += blocks[i].inputs;
      once = std::max(once, whole);
    } else if (last) {
      once = std::max(once, whole);
    } else {
      kept += whole;
    }
  }
  return kept + once;
}

double share_again(const std::vector<models::BlockActivations>& blocks,
                   const RecomputePolicy& policy) {
  double again = 0, forward = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    forward += blocks[i].forward_work;
    if (policy.runs_again(i, blocks.size())) again += blocks[i].forward_work;
    if (policy.attention) again += blocks[i].scores_work;
  }
  return forward > 0 ? again / (3 * forward) : 0;
}

}  // namespace memory
}  // namespace v0
}  // namespace trireme
