#include "trireme/memory/saved_tensors.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <optional>
#include <utility>

#include "trireme/memory/saved_view.h"

namespace trireme::inline v0::memory {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

thread_local TensorKeeper* keeper_here = nullptr;

class Hooks final : public SavedVariableHooks {
 public:
  explicit Hooks(TensorKeeper& keeper) : keeper_(keeper) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    give_back_ = keeper_.keep(tensor);
    if (give_back_) return;
    // Keep a leaf itself, since ZeRO-3 may move its memory. Detach other tensors: if their node is
    // the one that saves, keeping them would make a cycle.
    kept_ = tensor.is_leaf() ? tensor : tensor.detach();
    view_.emplace(tensor);
  }
  at::Tensor call_unpack_hook() override {
    if (give_back_) return give_back_();
    view_->check();
    return kept_;
  }

 private:
  TensorKeeper& keeper_;  // used only while its scope lives
  TensorKeeper::Return give_back_;
  at::Tensor kept_;
  std::optional<SavedView> view_;  // of kept_, for its check
};

class KeepingEngine final : public Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return keeper_here != nullptr ? std::make_unique<Hooks>(*keeper_here) : nullptr;
  }
};

// Never destroyed: threads may still be in a backward pass when the process ends.
Engine& keeping_engine() {
  static Engine* const engine = new KeepingEngine;
  return *engine;
}

}  // namespace

SavedTensorsScope::SavedTensorsScope(TensorKeeper& keeper) : outer_(keeper_here) {
  static const bool installed = (torch::autograd::set_default_engine_stub(keeping_engine), true);
  (void)installed;
  keeper_here = &keeper;
}

SavedTensorsScope::~SavedTensorsScope() { keeper_here = outer_; }

}  // namespace trireme::inline v0::memory
