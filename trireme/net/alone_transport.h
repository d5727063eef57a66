// AloneTransport: the transport of a group with one rank, which has no peer.
#pragma once

#include <memory>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::net {

class AloneTransport final : public Transport {
 public:
  explicit AloneTransport(std::shared_ptr<Waiter> waiter) : waiter_(std::move(waiter)) {}
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  std::shared_ptr<Waiter> waiter() const override { return waiter_; }
  std::string_view name() const noexcept override { return "alone"; }
  Work send(int peer, Tag, std::span<const std::byte>) override { return refuse(peer); }
  Work recv(int peer, Tag, std::span<std::byte>) override { return refuse(peer); }
  bool lost(int) const noexcept override { return false; }
  void abort(std::exception_ptr) noexcept override {}
  Capabilities capabilities() noexcept override { return {}; }

 private:
  static Work refuse(int peer) {
    TRIREME_CHECK(peer < 0);
    return Work();
  }
  const std::shared_ptr<Waiter> waiter_;
};

}  // namespace trireme::inline v0::net
