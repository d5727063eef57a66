// The parts of a torch::nn::Module that DataParallel reads: its tensors by name, a snapshot that
// finds later changes, and the forms in which ParameterSync and ParameterStore want the parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/optim/owned_slice.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/sync/gathers/parameter_store.h"
#include "trireme/sync/options.h"

namespace trireme::inline v0::parallel {

struct ModuleTensors {
  NamedTensors all;         // parameters and buffers, every name
  NamedTensors parameters;  // every name
  NamedTensors distinct;    // each tensor once
  NamedTensors trainable;   // distinct parameters that require grad
};
ModuleTensors tensors_of(torch::nn::Module& module);
ServerOptions server_options_of(const DataParallelOptions& options);

/// Throws ConfigError if DataParallel cannot train these tensors with these options.
void check_module(const ModuleTensors& tensors, const DataParallelOptions& options,
                  const torch::optim::Optimizer& optimizer);
/// The settings that must be equal on all ranks, as text. Call it while `optimizer` has the
/// module's own parameters, not shards of them.
std::string settings_of(const ModuleTensors& tensors, const DataParallelOptions& options,
                        const torch::optim::Optimizer& optimizer);

/// ", state 1f2e3d4c5b6a7988": a hash of what the optimizer has from steps before, or "" if it has
/// nothing that changes an update. Call it when settings_of() may be called.
std::string state_text(const ModuleTensors& tensors, torch::optim::Optimizer& optimizer);

/// Finds changes to a module's parameters since the start, because gradients of new or replaced
/// ones are not taken. Holds references to both arguments.
class ParameterSnapshot {
 public:
  /// `moved`: the parameters must stay at their current addresses (ZeRO).
  ParameterSnapshot(torch::nn::Module& module, const ModuleTensors& tensors, bool moved);
  /// "parameter x has another type or shape than when DataParallel was made"; empty: no change.
  std::string difference() const;

 private:
  struct Was {
    at::ScalarType type;
    std::int64_t count;
    bool required_grad;
    const void* memory;
  };
  const char* change_of(const at::Tensor& now, std::size_t i) const;

  torch::nn::Module& module_;
  const ModuleTensors& tensors_;
  std::vector<Was> was_;
};

std::vector<at::Tensor> without_names(const NamedTensors& named);
std::vector<Accumulated> accumulators(const NamedTensors& trainable);
std::vector<optim::OwnedSlice> whole_slices(const NamedTensors& trainable);
/// The parameters as the only block of a ParameterStore. Holds a reference to them.
std::shared_ptr<models::Block> as_one_block(const NamedTensors& trainable);
std::string hash_of(const NamedTensors& tensors);

}  // namespace trireme::inline v0::parallel
