// RoundsBackend: runs the rounds of a registered algorithm over the transport. It takes every call
// on CPU memory, and keeps each algorithm's resolved routes.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "trireme/comm/backend.h"
#include "trireme/comm/calls/operation.h"
#include "trireme/comm/rounds/route.h"

namespace trireme::inline v0::comm {

class RoundsBackend final : public Backend {
 public:
  explicit RoundsBackend(Engine& engine) : engine_(engine) {}
  std::shared_ptr<Run> begin(const std::shared_ptr<Call>& call) override;

 private:
  const Route& route_of(const Operation& operation);

  Engine& engine_;
  std::map<std::string, std::unique_ptr<Route>> routes_;
};

}  // namespace trireme::inline v0::comm
