// LocalSgd: every H steps weights, moments and buffers become the ranks' mean (Stich 2019,
// arXiv:1805.09767). Moments are averaged as in Yu, Jin, Yang 2019 (arXiv:1905.03817). A rank's
// momentum then fits its new weights, all ranks are equal after an exchange, and H = 1 with SGD is
// plain data parallel. An exchange costs (1 + moments) times the weights' bytes.
#include "trireme/decentralised/mixer.h"

namespace trireme::inline v0::parallel {
namespace {

class LocalSgd final : public Mixer {
 public:
  explicit LocalSgd(comm::Communicator& world) : world_(world) {}

  void attach(const Replica&) override {}
  bool mix(Replica& replica, std::int64_t) override {
    show(replica);
    average(world_, replica.moments, "moments");
    return true;
  }
  void show(Replica& replica) override {
    average(world_, replica.weights, "weights");
    average(world_, replica.buffers, "buffers");
  }
  void meet(Replica& replica, bool) override { mix(replica, 0); }
  void start(Replica&) override {}
  std::vector<NamedShard> state() override { return {}; }

 private:
  comm::Communicator& world_;
};

}  // namespace

std::unique_ptr<Mixer> make_local_sgd(comm::Communicator& world) {
  return std::make_unique<LocalSgd>(world);
}

}  // namespace trireme::inline v0::parallel
