#include "trireme/decentralised/gossip.h"

namespace trireme::inline v0::parallel {

Gossip::Gossip(comm::Communicator& world, const LocalOptions& options)
    : world_(world),
      mixing_(plan::make_mixing(options.graph, world.size(), options.graph_seed)),
      mixer_(world) {
  plan::check(mixing_);
}

void Gossip::mix(Replica& replica, std::int64_t round) {
  mixer_.mix(mixing_.round(round), replica.weights);
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
