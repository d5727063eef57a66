#include "trireme/ps/worker/shard_link.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/base/work_source.h"

namespace trireme::inline v0::ps::link_test {
namespace {

// A channel whose sends are under way until it ends.
class Slow final : public net::Channel {
 public:
  Slow(std::shared_ptr<Waiter> waiter, std::string& sent)
      : source_(std::move(waiter)), sent_(sent) {}
  ~Slow() override { sent_.assign(reinterpret_cast<const char*>(head_.data()), head_.size()); }
  const net::Identity& peer() const noexcept override { return peer_; }
  Work send(std::span<const std::byte> head, std::span<const std::byte>) override {
    head_ = head;
    return source_.work();
  }
  Work receive(net::ChannelFrame&) override { return source_.work(); }
  std::optional<net::SharedArea> share(std::size_t) override { return std::nullopt; }
  bool share(net::SharedArea&) override { return false; }
  std::span<std::byte> area_of_peer(std::uint32_t) override { return {}; }
  void close() override {}

 private:
  const net::Identity peer_;
  const WorkSource source_;
  std::string& sent_;
  std::span<const std::byte> head_;
};

// Another server becomes the primary while the link waits to be attached.
TEST(ShardLink, WhatAChannelSendsStaysUntilItEnds) {
  const auto waiter = RealWaiter::make();
  std::string sent;
  std::uint64_t term = 0;
  {
    ShardLink link(waiter, 0, "{}",
                   {.dial = [&](int) { return std::make_shared<Slow>(waiter, sent); },
                    .term = [&](int) { return ++term; },
                    .patience = Duration::zero()});
    EXPECT_THROW(link.connect(), PeerLost);
  }
  EXPECT_EQ(request_from(std::as_bytes(std::span(sent))).ask, Ask::Attach);
}

}  // namespace
}  // namespace trireme::inline v0::ps::link_test
