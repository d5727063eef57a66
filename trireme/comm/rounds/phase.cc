#include "trireme/comm/rounds/phase.h"

#include <utility>

namespace trireme::inline v0::comm {

std::shared_ptr<Phase> Phase::open(Engine& engine, std::function<void()> next) {
  return std::make_shared<Phase>(engine.shared_from_this(), std::move(next));
}

void Phase::send(int peer, net::Tag tag, std::span<const std::byte> bytes) {
  const Work work = engine_->transport->send(peer, tag, bytes);
  ++open_;
  engine_->transfers.expect(peer, 1);
  work.on_settled([self = shared_from_this(), peer](const std::exception_ptr& error) {
    if (!error) self->engine_->transfers.expect(peer, -1);
    self->settle(peer, error);
  });
}

void Phase::recv(int peer, net::Tag tag, std::span<std::byte> bytes,
                 std::function<void()> arrived) {
  const Work work = engine_->transport->recv(peer, tag, bytes);
  ++open_;
  engine_->transfers.expect(peer, 1);
  work.on_settled([self = shared_from_this(), peer,
                   arrived = std::move(arrived)](const std::exception_ptr& error) {
    if (!error)
      self->engine_->transfers.expect(peer, -1);  // kept after a failure: errors name the peer
    if (!error && arrived) self->attempt(arrived);
    self->settle(peer, error);
  });
}

void Phase::settle(int peer, const std::exception_ptr& error) {
  if (error) engine_->transfer_failed(peer, error);
  if (--open_ > 0) return;
  if (engine_->failure.broken()) return;
  attempt(std::exchange(next_, nullptr));
}

void Phase::attempt(const std::function<void()>& step) {
  try {
    step();
  } catch (...) {  // there is not enough memory; the progress context must not be left this way
    engine_->fail(std::current_exception());
  }
}

}  // namespace trireme::inline v0::comm
