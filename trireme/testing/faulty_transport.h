// FaultyTransport: another transport with a hook at every send, receive and notification, in the
// order in which this rank makes them: where a test kills, stops or aborts. The n-th call is the
// same place of the same algorithm in every run, whatever the time of day.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "trireme/net/transport.h"

namespace trireme {
inline namespace v0 {
namespace testing {

class FaultyTransport final : public net::Transport {
 public:
  /// `hook` runs in the progress context, before the call.
  FaultyTransport(std::shared_ptr<net::Transport> inner, std::function<void()> hook)
      : inner_(std::move(inner)), hook_(std::move(hook)) {}

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::shared_ptr<Waiter> waiter() const override { return inner_->waiter(); }
  std::string_view name() const noexcept override { return inner_->name(); }
  Work send(int peer, net::Tag tag, std::span<const std::byte> bytes) override {
    hook_();
    return inner_->send(peer, tag, bytes);
  }
  Work recv(int peer, net::Tag tag, std::span<std::byte> bytes) override {
    hook_();
    return inner_->recv(peer, tag, bytes);
  }
  net::Region register_memory(std::span<std::byte> bytes, Device device,
                              std::span<const int> readers) override {
    return inner_->register_memory(bytes, device, readers);
  }
  std::span<std::byte> map(int peer, net::RegionId region) override {
    return inner_->map(peer, region);
  }
  void unmap(int peer, net::RegionId region) noexcept override { inner_->unmap(peer, region); }
  bool can_map(int peer) const noexcept override { return inner_->can_map(peer); }
  void notify(int peer) noexcept override {
    hook_();
    inner_->notify(peer);
  }
  bool lost(int peer) const noexcept override { return inner_->lost(peer); }
  void abort(std::exception_ptr error) noexcept override { inner_->abort(std::move(error)); }

 private:
  const std::shared_ptr<net::Transport> inner_;
  const std::function<void()> hook_;
};

}  // namespace testing
}  // namespace v0
}  // namespace trireme
