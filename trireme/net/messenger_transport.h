// MessengerTransport: a Transport whose messages a Messenger matches. A FrameCarrier carries its
// frames: the rings of shm, the sockets of tcp, or MPI.
#pragma once

#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include "trireme/base/waiter.h"
#include "trireme/net/errors.h"
#include "trireme/net/messenger.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::net {

/// Carries the frames of a transport. The waiter polls it while the transport lives.
class FrameCarrier : public ProgressSource {
 public:
  Messenger& messenger() noexcept { return messenger_; }
  bool pending() const noexcept override { return messenger_.pending(); }
  /// Transport::abort().
  virtual void abort(const std::exception_ptr& error) noexcept { messenger_.abort(error); }
  /// The transport ends. Progress context.
  virtual void leave() { abort(closed(messenger_.name_of(messenger_.rank()))); }

 protected:
  FrameCarrier(int rank, int size, std::shared_ptr<Waiter> waiter, std::vector<int> names = {})
      : messenger_(rank, size, std::move(waiter), std::move(names)) {}

  Messenger messenger_;
};

class MessengerTransport final : public Transport {
 public:
  /// `name`: a literal.
  MessengerTransport(std::string_view name, std::shared_ptr<FrameCarrier> carrier,
                     const Capabilities& capabilities)
      : name_(name),
        carrier_(std::move(carrier)),
        messenger_(carrier_->messenger()),
        capabilities_(capabilities) {
    messenger_.waiter()->add(carrier_);
  }
  ~MessengerTransport() override {
    const std::shared_ptr<Waiter> waiter = messenger_.waiter();
    waiter->run([carrier = carrier_] { carrier->leave(); });
    waiter->remove(carrier_.get());
  }

  int rank() const noexcept override { return messenger_.rank(); }
  int size() const noexcept override { return messenger_.size(); }
  std::shared_ptr<Waiter> waiter() const override { return messenger_.waiter(); }
  std::string_view name() const noexcept override { return name_; }
  Work send(int peer, Tag tag, std::span<const std::byte> bytes) override {
    return messenger_.send(peer, tag, bytes);
  }
  Work recv(int peer, Tag tag, std::span<std::byte> bytes) override {
    return messenger_.recv(peer, tag, bytes);
  }
  bool lost(int peer) const noexcept override { return messenger_.lost(peer); }
  void abort(std::exception_ptr error) noexcept override { carrier_->abort(error); }
  Capabilities capabilities() noexcept override { return capabilities_; }

 private:
  const std::string_view name_;
  const std::shared_ptr<FrameCarrier> carrier_;
  Messenger& messenger_;
  const Capabilities capabilities_;
};

}  // namespace trireme::inline v0::net
