#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/comm/backend.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/rounds/program_run.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/comm/rounds/route.h"

namespace trireme::inline v0::comm {
namespace {

class RoundsBackend final : public Backend {
 public:
  explicit RoundsBackend(Engine& engine) : engine_(engine) {}
  std::shared_ptr<Run> begin(const std::shared_ptr<Call>& call) override {
    return std::make_shared<ProgramRun>(engine_, call, route_of(call->operation));
  }

 private:
  const Route& route_of(const Operation& operation);

  Engine& engine_;
  // By kind, leaves, root, pieces, algorithm and shares of the leaves.
  using Key = std::tuple<OpKind, std::uint32_t, int, int, std::string, std::vector<std::uint32_t>>;
  std::map<Key, std::unique_ptr<Route>> routes_;
};

const Route& RoundsBackend::route_of(const Operation& op) {
  const int size = engine_.facts.size;
  const int pieces = pieces_for(op.count * size_of(op.dtype), size);
  auto& route = routes_[{op.kind, op.total, op.root, pieces, op.algorithm, op.shares}];
  if (route) return *route;
  const auto recorded = [&](int count) {
    return record(op.algorithm, find_algorithm(op.kind, op.algorithm)->generator, size, op.root,
                  engine_.facts.hosts, count);
  };
  const Program program = recorded(pieces);
  const Layout layout = layout_of(op.kind, size, op.leaves(), op.root);
  route = std::make_unique<Route>(resolve(op.algorithm, program, layout)[engine_.facts.rank]);
  route->pipelined = pieces > 1 && program.num_chunks != recorded(1).num_chunks;
  return *route;
}

}  // namespace

std::unique_ptr<Backend> make_rounds_backend(Engine& engine) {
  return std::make_unique<RoundsBackend>(engine);
}

}  // namespace trireme::inline v0::comm
