// CountingTransport: a wrapper that counts the bytes that this rank sends to each peer. It has no
// access to peers' memory, so all bytes are sent.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/net/transport.h"

namespace trireme::inline v0::testing {

class CountingTransport final : public net::Transport {
 public:
  /// `sent`: one counter per peer; must outlive this object.
  CountingTransport(std::shared_ptr<net::Transport> inner, std::vector<std::size_t>& sent)
      : inner_(std::move(inner)), sent_(sent) {}

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::shared_ptr<Waiter> waiter() const override { return inner_->waiter(); }
  std::string_view name() const noexcept override { return inner_->name(); }
  Work send(int peer, net::Tag tag, std::span<const std::byte> bytes) override {
    sent_.at(static_cast<std::size_t>(peer)) += bytes.size();
    return inner_->send(peer, tag, bytes);
  }
  Work recv(int peer, net::Tag tag, std::span<std::byte> bytes) override {
    return inner_->recv(peer, tag, bytes);
  }
  bool lost(int peer) const noexcept override { return inner_->lost(peer); }
  void abort(std::exception_ptr error) noexcept override { inner_->abort(std::move(error)); }
  net::Capabilities capabilities() noexcept override { return {}; }

 private:
  const std::shared_ptr<net::Transport> inner_;
  std::vector<std::size_t>& sent_;
};

}  // namespace trireme::inline v0::testing
