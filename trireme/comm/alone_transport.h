// AloneTransport: the transport of a group with one rank. It never sends anything; the memory that
// it registers is ordinary memory of this process.
#pragma once

#include <memory>
#include <mutex>

#include "trireme/net/transport.h"

namespace trireme::inline v0::comm {

class AloneTransport final : public net::Transport {
 public:
  explicit AloneTransport(std::shared_ptr<Waiter> waiter) : waiter_(std::move(waiter)) {}
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  std::shared_ptr<Waiter> waiter() const override { return waiter_; }
  std::string_view name() const noexcept override { return "alone"; }
  Work send(int peer, net::Tag tag, std::span<const std::byte> bytes) override;
  Work recv(int peer, net::Tag tag, std::span<std::byte> bytes) override;
  net::Region register_memory(std::span<std::byte> bytes, Device device,
                              std::span<const int> peers) override;
  std::span<std::byte> map(int, net::RegionId) override { return {}; }
  void unmap(int, net::RegionId) noexcept override {}
  bool can_map(int) const noexcept override { return false; }
  void notify(int) noexcept override {}
  bool lost(int) const noexcept override { return false; }
  void abort(std::exception_ptr) noexcept override {}

 private:
  std::shared_ptr<Waiter> waiter_;
  std::uint32_t regions_ = 0;
};

}  // namespace trireme::inline v0::comm
