#include "trireme/memory/recompute.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/parse_number.h"
#include "trireme/base/shape_text.h"
#include "trireme/base/shortened.h"
#include "trireme/models/figures.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/functions/second_derivative.h"

namespace trireme::inline v0::memory {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// The CPU, and the tensors' devices that have generators.
std::vector<at::Device> devices_of(const variable_list& tensors) {
  std::vector<at::Device> devices = {at::kCPU};
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && at::accelerator::isAccelerator(tensor.device().type()) &&
        std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  return devices;
}

// A saved state of LibTorch's default generators of some devices.
class GeneratorStates {
 public:
  explicit GeneratorStates(const std::vector<at::Device>& devices) {
    for (const at::Device& device : devices) {
      at::Generator generator = at::globalContext().defaultGenerator(device);
      const std::lock_guard lock(generator.mutex());
      states_.emplace_back(generator, generator.get_state());
    }
  }
  void restore() {
    for (auto& [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// While it lives, the generators draw from an earlier state.
class Rewound {
 public:
  Rewound(const std::vector<at::Device>& devices, GeneratorStates& earlier) : now_(devices) {
    earlier.restore();
  }
  ~Rewound() { now_.restore(); }

 private:
  GeneratorStates now_;
};

// The autocast state of one kind of device.
struct Casts {
  explicit Casts(at::DeviceType own_type)
      : type(own_type),
        enabled(at::autocast::is_autocast_enabled(type)),
        to(at::autocast::get_autocast_dtype(type)) {}
  at::DeviceType type;
  bool enabled;
  at::ScalarType to;
};

// While it lives, autocast keeps no casts of weights: a cast that was made without gradients would
// be used again where they are needed, until the outermost region ends.
class CastsNotKept {
 public:
  CastsNotKept() { at::autocast::set_autocast_cache_enabled(false); }
  ~CastsNotKept() { at::autocast::set_autocast_cache_enabled(kept_); }
  CastsNotKept(const CastsNotKept&) = delete;

 private:
  const bool kept_ = at::autocast::is_autocast_cache_enabled();
};

// The state of the first run that the second one needs.
struct Rerun final : torch::CustomClassHolder {
  Forward forward;
  std::optional<GeneratorStates> generators;
  std::vector<Casts> casts{at::autocast::_AUTOCAST_SUPPORTED_DEVICES.begin(),
                           at::autocast::_AUTOCAST_SUPPORTED_DEVICES.end()};

  variable_list run(const variable_list& inputs) {
    const at::AutoGradMode gradients(true);
    std::list<Autocast> scopes;
    for (const Casts& one : casts) scopes.emplace_back(one.type, one.to, one.enabled);
    std::optional<Rewound> rewound;
    if (generators) rewound.emplace(devices_of(inputs), *generators);
    return forward(inputs);
  }
};

variable_list detached(const variable_list& inputs) {
  variable_list leaves;
  for (const at::Tensor& input : inputs)
    leaves.push_back(input.defined() ? input.detach().requires_grad_(input.requires_grad())
                                     : at::Tensor());
  return leaves;
}

// The second run has gradient mode, the first had not.
void check_shape(const at::Tensor& again, const at::Tensor& gradient) {
  if (again.sizes() == gradient.sizes()) return;
  throw ConfigError("a part of the model that is computed again gave a tensor of " +
                        shape_text(gradient.sizes()) + " first, and one of " +
                        shape_text(again.sizes()) + " the second time",
                    {.operation = "recompute",
                     .advice = "Do not recompute a block whose result depends on whether gradients "
                               "are computed, such as a vocabulary's logits with parallel.tensor "
                               "(memory.recompute takes a policy for each block)."});
}

// The number of nested backward passes of recomputed parts on this thread.
thread_local int backward_depth = 0;

struct RecomputedBackward {
  RecomputedBackward() { ++backward_depth; }
  ~RecomputedBackward() { --backward_depth; }
};

class RecomputeFunction : public torch::autograd::Function<RecomputeFunction> {
 public:
  // `anchor` requires grad, so that backward runs even if no input requires grad: `forward` may use
  // leaves that are not inputs.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& anchor,
                               const c10::intrusive_ptr<Rerun>& rerun, at::TensorList inputs) {
    (void)anchor;
    ctx->save_for_backward(inputs.vec());
    ctx->saved_data["rerun"] = c10::IValue::make_capsule(rerun);
    const CastsNotKept without_gradients;
    return rerun->forward(inputs.vec());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    tensor::refuse_second_derivative();
    const variable_list leaves = detached(ctx->get_saved_variables());
    const auto capsule = ctx->saved_data["rerun"].toCapsule();
    const variable_list outputs = static_cast<Rerun*>(capsule.get())->run(leaves);
    TRIREME_CHECK(outputs.size() == gradients.size());
    variable_list roots, root_gradients;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined() || !outputs[i].requires_grad() || !gradients[i].defined()) continue;
      check_shape(outputs[i], gradients[i]);
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[i]);
    }
    const RecomputedBackward scope;
    if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
    variable_list result = {Variable(), Variable()};  // no gradients for `anchor` and `rerun`
    for (const at::Tensor& leaf : leaves)
      result.push_back(leaf.defined() && leaf.requires_grad() ? leaf.grad() : at::Tensor());
    return result;
  }
};

}  // namespace

bool in_recomputed_backward() noexcept { return backward_depth > 0; }

std::vector<at::Tensor> recompute(const Forward& forward, const std::vector<at::Tensor>& inputs,
                                  Draws draws) {
  if (!at::GradMode::is_enabled()) return forward(inputs);
  const auto rerun = c10::make_intrusive<Rerun>();
  rerun->forward = forward;
  if (draws == Draws::Again) rerun->generators.emplace(devices_of(inputs));
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

Recompute RecomputePolicy::of(std::size_t block, std::size_t blocks) const {
  const bool last = block + 1 == blocks;
  const Recompute asked = of_block.empty() ? kind : of_block.at(block);
  if (asked != Recompute::Full) return asked;
  return !last && (!of_block.empty() || (block + 1) % every == 0) ? asked : Recompute::None;
}

namespace {

constexpr std::pair<const char*, Recompute> kNames[] = {
    {"none", Recompute::None}, {"selective", Recompute::Selective}, {"full", Recompute::Full}};

[[noreturn]] void refuse(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "config", .label = "memory.recompute", .advice = advice});
}

std::optional<Recompute> kind_of(std::string_view word) {
  for (const auto& [name, kind] : kNames)
    if (word == name) return kind;
  return std::nullopt;
}

// Parses the whole text as a number above 0.
std::optional<std::size_t> count_of(std::string_view digits) {
  const auto count = parse_number<std::size_t>(digits);
  return count > std::size_t{0} ? count : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Parses "full*3, none"; empty if the text is not such a list.
std::vector<Recompute> list_of(std::string_view text) {
  constexpr std::size_t kMostBlocks = 1'000'000;
  std::vector<Recompute> of_block;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view item = trimmed(text.substr(0, comma));
    const std::size_t star = item.find('*');
    const auto kind = kind_of(item.substr(0, star));
    const auto count = star == item.npos ? 1 : count_of(item.substr(star + 1));
    if (!kind || !count || *count > kMostBlocks) return {};
    of_block.insert(of_block.end(), *count, *kind);
    if (comma == text.npos) return of_block;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

RecomputePolicy parse_recompute(const std::string& text) {
  constexpr std::string_view kEvery = "every-";
  if (const auto kind = kind_of(text)) return {.kind = *kind};
  if (text.starts_with(kEvery))
    if (const auto every = count_of(std::string_view(text).substr(kEvery.size())))
      return {.kind = Recompute::Full, .every = *every};
  if (auto list = list_of(text); !list.empty()) return {.of_block = std::move(list)};
  if (text == "auto")
    refuse("memory.recompute = \"auto\" works only in `trireme train` and `trireme plan`",
           "Name a policy for each block instead, such as full*3,none*2.");
  refuse(
      "memory.recompute = \"" + shortened(text) + "\"",
      "Use none, selective, full, every-K such as every-2, auto, or a list with one of the first "
      "three for each block, such as full*3,none*2.");
}

RecomputePolicy parse_recompute(const std::string& text, std::size_t blocks) {
  RecomputePolicy policy = parse_recompute(text);
  if (!policy.of_block.empty() && policy.of_block.size() != blocks)
    refuse("memory.recompute = \"" + shortened(text) + "\" is for " +
               std::to_string(policy.of_block.size()) + " blocks, and the model has " +
               std::to_string(blocks),
           "Give one word for each block.");
  return policy;
}

std::string name_of(Recompute kind) {
  for (const auto& [name, one] : kNames)
    if (one == kind) return name;
  TRIREME_CHECK(false);
  return {};
}

std::string to_text(const std::vector<Recompute>& of_block) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < of_block.size(); begin = end) {
    while (end < of_block.size() && of_block[end] == of_block[begin]) ++end;
    text +=
        (text.empty() ? "" : ",") + name_of(of_block[begin]) + "*" + std::to_string(end - begin);
  }
  return text;
}

// The last block runs back first, so its bytes are gone before other blocks need `once`.
BlockCost cost_of(const models::BlockActivations& block, Recompute kind, bool last) {
  const std::int64_t whole = block.kept - (kind == Recompute::Selective ? block.probabilities : 0);
  const double scores = kind == Recompute::Selective ? block.scores_work : 0;
  if (kind == Recompute::Full)
    return {.stays = block.inputs, .once = whole, .again = block.forward_work};
  if (last) return {.once = whole, .again = scores};
  return {.stays = whole, .again = scores};
}

ActivationCosts costs_of(const std::vector<models::BlockActivations>& blocks,
                         const RecomputePolicy& policy) {
  ActivationCosts costs;
  std::int64_t once = 0, before = 0;
  double again = 0, forward = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const bool last = i + 1 == blocks.size();
    const BlockCost cost = cost_of(blocks[i], policy.of(i, blocks.size()), last);
    costs.peak += cost.stays;
    once = std::max(once, cost.once);
    costs.peak_offloaded = std::max(costs.peak_offloaded, before + cost.stays + cost.once);
    before = cost.stays;
    if (!last) costs.file += cost.stays;
    again += cost.again;
    forward += blocks[i].forward_work;
  }
  costs.peak += once;
  if (forward > 0) costs.share_again = again / (3 * forward);
  return costs;
}

}  // namespace trireme::inline v0::memory
