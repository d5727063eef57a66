// FaultyTransport: a wrapper that calls a hook at every send, receive, notification and read of a
// peer's memory, in the order in which this rank makes them. Tests kill, stop or abort there. The
// n-th call is at the same point of the same algorithm in every run.
//
// A read is split in two halves with a hook call before each, so a peer can disappear in the
// middle. Access to mapped memory is not a call; tests that need it get the mapping from on_map.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "trireme/net/transport.h"

namespace trireme::inline v0::testing {

class FaultyTransport final : public net::Transport, private net::HostMemory {
 public:
  enum class Call { Send, Recv, Notify, Read };
  struct Options {
    bool reads = true;        // false: as on a host that forbids reading peers' memory
    bool reads_fail = false;  // true: as if every peer's process had just ended
    /// Called when a peer's memory is mapped; later reads and writes of it are not calls.
    std::function<void(int peer, std::span<std::byte> memory)> on_map = nullptr;
  };

  /// `hook` runs in the progress context, before the call.
  FaultyTransport(std::shared_ptr<net::Transport> inner, std::function<void(Call, int peer)> hook,
                  Options options)
      : inner_(std::move(inner)),
        memory_(inner_->capabilities().memory),
        hook_(std::move(hook)),
        options_(options) {}
  FaultyTransport(std::shared_ptr<net::Transport> inner, std::function<void(Call, int peer)> hook)
      : FaultyTransport(std::move(inner), std::move(hook), Options()) {}

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::shared_ptr<Waiter> waiter() const override { return inner_->waiter(); }
  std::string_view name() const noexcept override { return inner_->name(); }
  Work send(int peer, net::Tag tag, std::span<const std::byte> bytes) override {
    hook_(Call::Send, peer);
    return inner_->send(peer, tag, bytes);
  }
  Work recv(int peer, net::Tag tag, std::span<std::byte> bytes) override {
    hook_(Call::Recv, peer);
    return inner_->recv(peer, tag, bytes);
  }
  bool lost(int peer) const noexcept override { return inner_->lost(peer); }
  void abort(std::exception_ptr error) noexcept override { inner_->abort(std::move(error)); }
  net::Capabilities capabilities() noexcept override {
    net::Capabilities its = inner_->capabilities();
    if (memory_) its.memory = this;
    return its;
  }

 private:
  // HostMemory:
  net::Region allocate(std::size_t bytes, std::span<const int> peers) override {
    return memory_->allocate(bytes, peers);
  }
  bool can_map(int peer) const noexcept override { return memory_->can_map(peer); }
  std::span<std::byte> map(int peer, net::RegionId region) override {
    const std::span<std::byte> memory = memory_->map(peer, region);
    if (options_.on_map && !memory.empty()) options_.on_map(peer, memory);
    return memory;
  }
  void unmap(int peer, net::RegionId region) noexcept override { memory_->unmap(peer, region); }
  bool read(int peer, std::uintptr_t address, std::span<std::byte> to) override {
    if (!options_.reads || to.empty()) return options_.reads && memory_->read(peer, address, to);
    if (options_.reads_fail) return false;
    const std::size_t half = to.size() / 2;
    hook_(Call::Read, peer);
    if (!memory_->read(peer, address, to.first(half))) return false;
    hook_(Call::Read, peer);
    return memory_->read(peer, address + half, to.subspan(half));
  }
  void notify(int peer) noexcept override {
    hook_(Call::Notify, peer);
    memory_->notify(peer);
  }

  const std::shared_ptr<net::Transport> inner_;
  net::HostMemory* const memory_;  // the inner transport's
  const std::function<void(Call, int peer)> hook_;
  const Options options_;
};

}  // namespace trireme::inline v0::testing
