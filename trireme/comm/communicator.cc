#include "trireme/comm/communicator.h"

#include "trireme/comm/choice/selection.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/comm/engine.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::comm {

Communicator::Communicator(std::shared_ptr<net::Transport> transport, CommunicatorOptions options)
    : Communicator(Engine::create(std::move(transport), std::move(options))) {}

Communicator::Communicator(std::shared_ptr<Engine> engine) try : Calls(engine) {
} catch (...) {  // ~Communicator will not run, and the engine must stop polling
  engine->close();
}

Communicator::~Communicator() { engine_->close(); }

int Communicator::rank() const noexcept { return engine_->facts.rank; }
int Communicator::size() const noexcept { return engine_->facts.size; }
const std::string& Communicator::name() const noexcept { return engine_->facts.options.name; }
std::string_view Communicator::transport_name() const noexcept {
  return engine_->transport->name();
}
bool Communicator::can_map() const noexcept { return engine_->arenas != nullptr; }
bool Communicator::reproducible() const noexcept { return engine_->facts.options.reproducible; }
std::shared_ptr<Waiter> Communicator::waiter() const { return engine_->transport->waiter(); }
std::exception_ptr Communicator::failure() const noexcept { return engine_->failure.error(); }
Duration Communicator::time_waited() const noexcept { return engine_->waits.time(); }
void Communicator::abort(std::exception_ptr error) noexcept { engine_->abort(std::move(error)); }
Arena Communicator::allocate(std::size_t bytes, Device device) {
  return engine_->allocate(bytes, device);
}

void Communicator::stage_through(std::shared_ptr<DeviceCopies> copies) {
  engine_->copies = std::move(copies);
}

std::string Communicator::explain_all_reduce(std::size_t bytes) const {
  return selection_->chooser().explain(OpKind::AllReduce, bytes,
                                       static_cast<std::uint32_t>(size()));
}

}  // namespace trireme::inline v0::comm
