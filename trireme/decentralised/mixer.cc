#include "trireme/decentralised/mixer.h"

#include <ATen/Functions.h>

#include "trireme/tensor/convert.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::parallel {

void average(comm::Communicator& world, const std::vector<Buffer>& buffers, const char* label) {
  if (world.size() == 1 || buffers.empty()) return;
  world.all_reduce_many(buffers, Mean, {.label = label}).wait();
}

bool is_mixed(const at::Tensor& buffer) {
  const at::ScalarType type = buffer.scalar_type();
  return buffer.numel() > 0 && (c10::isFloatingType(type) || type == at::kLong || type == at::kInt);
}

void average(comm::Communicator& world, const std::vector<at::Tensor>& tensors, const char* label) {
  std::vector<at::Tensor> dense;  // the same memory, or a copy
  std::vector<Buffer> numbers, counts;
  for (const at::Tensor& tensor : tensors) {
    dense.push_back(tensor.contiguous());
    const bool number = c10::isFloatingType(tensor.scalar_type());
    (number ? numbers : counts).push_back(tensor::to_buffer(dense.back()));
  }
  average(world, numbers, label);
  if (world.size() > 1 && !counts.empty())
    world.all_reduce_many(counts, Max, {.label = label}).wait();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].is_contiguous()) tensor::copy_elements(tensors[i], dense[i]);
}

std::vector<NamedShard> copies_of(const std::vector<NamedShard>& masters,
                                  const std::string& prefix) {
  std::vector<NamedShard> copies = masters;
  for (NamedShard& copy : copies) {
    copy.name = prefix + copy.name;
    copy.local = copy.local.detach().clone();
  }
  return copies;
}

void copy_values(const Buffer& from, const Buffer& to) {
  tensor::view_of(to).copy_(tensor::view_of(from));
}

void copy_into(const std::vector<NamedShard>& kept, const std::vector<Buffer>& weights) {
  for (std::size_t i = 0; i < kept.size(); ++i)
    copy_values(weights[i], tensor::to_buffer(kept[i].local));
}

void copy_from(const std::vector<NamedShard>& kept, const std::vector<Buffer>& weights) {
  for (std::size_t i = 0; i < kept.size(); ++i)
    copy_values(tensor::to_buffer(kept[i].local), weights[i]);
}

std::unique_ptr<Mixer> make_mixer(const std::string& sync, comm::Communicator& world,
                                  const LocalOptions& options) {
  if (sync == "local_sgd") return make_local_sgd(world);
  if (sync == "diloco") return make_diloco(world, options);
  if (sync == "gossip") return make_gossip(world, options);
  if (sync == "easgd") return make_easgd(world, options);
  return nullptr;
}

}  // namespace trireme::inline v0::parallel
