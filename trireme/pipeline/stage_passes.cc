#include "trireme/pipeline/stage_passes.h"

#include <ATen/ops/full_like.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/tensor/functions/loss_gradient.h"

namespace trireme::inline v0::parallel {
namespace {

// Backward passes of a device run in the calling thread, as the CPU's do, not in LibTorch's thread
// of that device. There hooks of parameters would wait for other ranks, and ranks that share the
// device in one process would share that thread.
class OneThread {
 public:
  OneThread() { state().set_multithreading_enabled(false); }
  ~OneThread() { state().set_multithreading_enabled(before_); }
  OneThread(const OneThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  const bool before_ = state().get_multithreading_enabled();
};

// The end of a stage's graph: catches the gradient of one tensor that came in.
struct CatchGradient final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    caught = std::move(gradients.at(0));
    return {};
  }
  at::Tensor caught;
};

// A new node in autograd's pointer: shared_ptr in older LibTorch, intrusive_ptr in newer ones.
template <class Node>
auto make_node() {
  using Pointer = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<Node>();
  } else {
    return c10::make_intrusive<Node>();
  }
}

}  // namespace

at::Tensor checked_loss(at::Tensor loss) {
  if (loss.numel() == 1 && loss.requires_grad()) return loss;
  throw ConfigError("the loss has " + std::to_string(loss.numel()) + " elements" +
                        (loss.requires_grad() ? "" : " and no gradient"),
                    {.operation = "step", .advice = "Return the summed loss, a scalar."});
}

struct StagePasses::Kept {
  struct Input {
    decltype(make_node<CatchGradient>()) node;
    TensorLayout layout;
  };
  std::vector<Input> inputs;           // that carry a gradient
  torch::autograd::edge_list outputs;  // that carry one; not the tensors, which may be freed
  at::Tensor loss;                     // of the last stage
};

StagePasses::StagePasses(Stage& stage) : stage_(stage) {}
StagePasses::~StagePasses() = default;
StagePasses::StagePasses(StagePasses&&) noexcept = default;

void StagePasses::drop() { kept_.clear(); }

// The incoming values by name. Those that carry a gradient end in a CatchGradient node.
Values StagePasses::enter(Parcel in, Kept* kept) const {
  TRIREME_CHECK(in.counts.size() == stage_.takes().size());
  Values values;
  std::size_t at = 0;
  for (std::size_t i = 0; i < in.counts.size(); ++i) {
    models::Value& value = values[stage_.takes()[i]];
    for (std::size_t left = in.counts[i]; left > 0; --left, ++at) {
      at::Tensor tensor = in.tensors[at];
      if (kept != nullptr && in.layouts[at].carries_gradient) {
        auto node = make_node<CatchGradient>();
        torch::autograd::set_history(tensor, node);
        kept->inputs.push_back({std::move(node), in.layouts[at]});
      }
      value.push_back(std::move(tensor));
    }
  }
  return values;
}

Parcel StagePasses::forward(std::uint32_t number, const MicroBatch& micro, std::int64_t step,
                            Parcel in, const Stage::Enter& around) {
  const bool keeps = c10::GradMode::is_enabled();
  Kept kept;
  Values values =
      stage_.forward(enter(std::move(in), keeps ? &kept : nullptr), micro, step, around);
  Parcel out;
  for (const std::string& name : stage_.gives()) {
    const auto found = values.find(name);
    TRIREME_CHECK(found != values.end());
    out.counts.push_back(found->second.size());
    for (const at::Tensor& tensor : found->second) {
      const bool carries = keeps && tensor.requires_grad();
      if (carries) kept.outputs.push_back(torch::autograd::impl::gradient_edge(tensor));
      out.layouts.push_back(layout_of(tensor, carries));
      out.tensors.push_back(tensor.detach());
    }
  }
  if (keeps) kept_[number] = std::move(kept);
  return out;
}

at::Tensor StagePasses::forward_loss(std::uint32_t number, const MicroBatch& micro,
                                     std::int64_t step, Parcel in, const SumLoss& loss,
                                     const Stage::Enter& around) {
  Kept kept;
  Values values = stage_.forward(enter(std::move(in), &kept), micro, step, around);
  kept.loss = checked_loss(loss(values.at(stage_.gives().back()), micro));
  const at::Tensor sum = kept.loss.detach();
  kept_[number] = std::move(kept);
  return sum;
}

models::Value StagePasses::forward_value(const MicroBatch& micro, std::int64_t step, Parcel in,
                                         const Stage::Enter& around) {
  Values values = stage_.forward(enter(std::move(in), nullptr), micro, step, around);
  return std::move(values.at(stage_.gives().back()));
}

Parcel StagePasses::backward(std::uint32_t number, const Parcel& gradients) {
  const auto found = kept_.find(number);
  TRIREME_CHECK(found != kept_.end());
  Kept kept = std::move(found->second);
  kept_.erase(found);
  torch::autograd::edge_list roots;
  torch::autograd::variable_list of_roots;
  if (kept.loss.defined()) {
    roots.push_back(torch::autograd::impl::gradient_edge(kept.loss));
    of_roots.push_back(at::full_like(kept.loss, tensor::loss_gradient()));
  } else {
    TRIREME_CHECK(gradients.tensors.size() == kept.outputs.size());
    for (std::size_t i = 0; i < kept.outputs.size(); ++i) {
      if (!gradients.tensors[i].defined()) continue;
      roots.push_back(kept.outputs[i]);
      of_roots.push_back(gradients.tensors[i]);
    }
  }
  if (!roots.empty()) {
    const OneThread one_thread;
    torch::autograd::Engine::get_default_engine().execute(roots, of_roots, /*keep_graph=*/false,
                                                          /*create_graph=*/false,
                                                          /*accumulate_grad=*/true);
  }
  Parcel back{.counts = {kept.inputs.size()}};
  for (const Kept::Input& input : kept.inputs) {
    const at::Tensor& caught = input.node->caught;
    back.layouts.push_back(caught.defined() ? layout_of(caught, false) : input.layout);
    back.layouts.back().carries_gradient = false;
    back.tensors.push_back(caught);
  }
  return back;
}

}  // namespace trireme::inline v0::parallel
