// Headers as messages, for groups that have no board: every rank sends its envelope to all others.
// Progress context only.
#pragma once

#include <memory>

#include "trireme/comm/calls/call.h"

namespace trireme::inline v0::comm {

class Engine;

/// Exchanges the envelopes of the running call; ends with Engine::on_agreed if all are the same.
void exchange_headers(Engine& engine, const std::shared_ptr<Call>& call);

}  // namespace trireme::inline v0::comm
