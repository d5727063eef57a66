#include "trireme/memory/activation_store.h"

#include <c10/core/GradMode.h>

#include "trireme/memory/host_activations.h"
#include "trireme/memory/saved_tensors.h"

namespace trireme::inline v0::memory {

at::Tensor ActivationStore::run(const std::function<at::Tensor(const at::Tensor&)>& forward,
                                const at::Tensor& input) {
  const Block block(*this);
  return forward(input);
}

ActivationStore::Block::Block(ActivationStore& store) {
  if (!c10::GradMode::is_enabled()) return;
  keeper_ = store.begin_block();
  scope_ = std::make_unique<SavedTensorsScope>(*keeper_);
}

ActivationStore::Block::~Block() = default;

std::shared_ptr<ActivationStore> make_activation_store(const std::string& place,
                                                       at::Device device) {
  if (device.is_cpu()) return std::make_shared<ActivationFile>(place);
  return make_host_activations(device);
}

}  // namespace trireme::inline v0::memory
