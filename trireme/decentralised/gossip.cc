#include "trireme/decentralised/gossip.h"

#include <ATen/core/Tensor.h>

#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {

Gossip::Gossip(comm::Communicator& world, const LocalOptions& options)
    : world_(world),
      mixing_(plan::make_mixing(options.graph, world.size(), options.graph_seed)),
      mixer_(world) {
  plan::check(mixing_);
}

void Gossip::mix(Replica& replica, std::int64_t round) {
  std::vector<at::Tensor> own, host;  // the same ones on the CPU; messages are the host's memory
  std::vector<Buffer> buffers;
  for (const Buffer& weight : replica.weights) {
    own.push_back(tensor::view_of(weight));
    host.push_back(own.back().cpu());
    buffers.push_back(tensor::to_buffer(host.back()));
  }
  mixer_.mix(mixing_.round(round), buffers);
  for (std::size_t i = 0; i < own.size(); ++i) own[i].copy_(host[i]);
}

void Gossip::show(Replica& replica) {
  average(world_, replica.weights, "weights");
  average(world_, replica.buffers, "buffers");
}

void Gossip::meet(Replica& replica, bool) {
  show(replica);
  average(world_, replica.moments, "moments");
}

}  // namespace trireme::inline v0::parallel
