// A server's thread waits neither for another server that hangs nor for the coordinator.
#include "trireme/job/job_servers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/socket.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/coordinator/coordinator.h"
#include "trireme/rendezvous/coordinator/state_store.h"

namespace trireme::job_servers_test {
namespace {

using std::chrono::seconds;

using Arriving = std::shared_ptr<std::shared_ptr<net::Channel>>;
Arriving nobody_yet() { return std::make_shared<std::shared_ptr<net::Channel>>(); }

TEST(JobServers, AServerThatHangsHoldsUpNeitherTheCallerNorConnectionsToOthers) {
  const auto waiter = RealWaiter::make();
  net::ChannelOptions options;
  options.secret = "s3cret";
  const auto acceptor = net::listen_channels(waiter, options);
  std::optional<net::Listener> silent = net::listen_tcp("127.0.0.1");
  rendezvous::ServerAuthority authority(2);
  authority.up(0, silent->address);
  authority.up(1, acceptor->address());
  JobServers servers;
  servers.open(waiter, nullptr, options, /*serves=*/true);
  servers.adopt(authority.view());

  const Arriving from_silent = nobody_yet(), from_other = nobody_yet();
  const Work hangs = servers.dial(0, from_silent);
  const Work comes = servers.dial(1, from_other);
  EXPECT_FALSE(hangs.done());
  std::shared_ptr<net::Channel> caller;
  acceptor->accept(caller).wait(Deadline::in(seconds(30)));
  comes.wait(Deadline::in(seconds(30)));
  EXPECT_NE(*from_other, nullptr);
  silent.reset();
  EXPECT_THROW(hangs.wait(Deadline::in(seconds(30))), Error);
  EXPECT_EQ(*from_silent, nullptr);
}

// Saves nothing while it is away.
class AwayStore final : public rendezvous::StateStore {
 public:
  std::optional<std::string> open() override { return {}; }
  void save(const std::string&) override {
    if (away) back.wait(seconds(60));
  }
  void clear() override {}
  const std::string& address() const noexcept override { return address_; }
  std::atomic<bool> away{false};
  Event back;

 private:
  const std::string address_ = "memory";
};

TEST(JobServers, ACoordinatorThatWaitsForItsStoreHoldsUpNoServer) {
  const std::string secret(32, 's');
  const auto store = std::make_shared<AwayStore>();
  Event told;
  rendezvous::Coordinator coordinator({.roles = {.workers = 1, .servers = 2},
                                       .secret = secret,
                                       .on_new_copy = [&](int, int) { told.set(); },
                                       .store = store});
  const auto client_of = [&](int process) {
    return std::make_unique<rendezvous::CoordinatorClient>(rendezvous::ClientOptions{
        .endpoint = coordinator.endpoint(), .secret = secret, .rank = process, .host = "host"});
  };
  const auto zero = client_of(1), one = client_of(2);
  zero->listen_at("zero", seconds(30));
  one->listen_at("one", seconds(30));
  store->away = true;
  const auto waiter = RealWaiter::make();
  JobServers servers;
  servers.open(waiter, zero.get(), {}, /*serves=*/true);
  const TimePoint begun = waiter->now();
  for (int times = 0; times < 4; ++times) servers.tell_copy(0, 1, 1, 1);
  EXPECT_LT(waiter->now() - begun, seconds(4)) << "it has waited for an answer to each";
  store->back.set();
  EXPECT_TRUE(told.wait(seconds(30)));
}

}  // namespace
}  // namespace trireme::job_servers_test
