// A coordinator whose host vanishes without a word: its connections stay open, and nothing comes back from it. Another
// coordinator follows it at the same address.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/event.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/rendezvous/coordinator/coordinator_test.h"

namespace trireme::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Passes bytes between its callers and a coordinator, until it becomes silent.
class Network {
 public:
  explicit Network(std::string target) : target_(std::move(target)) {
    thread_ = std::thread([this] { run(); });
  }
  ~Network() {
    done_ = true;
    thread_.join();
  }
  std::string endpoint() const { return listener_.address.substr(listener_.address.find(' ') + 1); }
  // Connections pass nothing any more, and are not closed; new ones are refused.
  void vanish() {
    std::lock_guard lock(mutex_);
    for (auto& one : connections_) silent_.push_back(std::move(one));
    connections_.clear();
    target_.clear();
  }
  void lead_to(const std::string& target) {
    std::lock_guard lock(mutex_);
    target_ = target;
  }
  // As the system does after a while.
  void close_silent() {
    std::lock_guard lock(mutex_);
    silent_.clear();
  }

 private:
  using Connection = std::pair<Descriptor, Descriptor>;

  void run() {
    while (!done_) {
      std::vector<pollfd> ready{{listener_.socket.get(), POLLIN, 0}};
      {
        std::lock_guard lock(mutex_);
        for (const auto& [caller, called] : connections_)
          for (const int end : {caller.get(), called.get()}) ready.push_back({end, POLLIN, 0});
      }
      poll(ready.data(), ready.size(), 5);
      std::lock_guard lock(mutex_);
      if (Descriptor caller = net::accept_now(listener_)) connect(std::move(caller));
      std::erase_if(connections_, [this](const Connection& one) {
        return !pass(one.first.get(), one.second.get()) || !pass(one.second.get(), one.first.get());
      });
    }
  }
  void connect(Descriptor caller) {
    if (target_.empty()) return;
    try {
      auto called = net::dial(*waiter_, "tcp " + target_, steady_now() + seconds(5));
      connections_.emplace_back(std::move(caller), std::move(called));
    } catch (const Error&) {  // the caller tries again
    }
  }
  bool pass(int from, int to) {
    std::array<std::byte, 4096> bytes;
    for (;;) {
      const ssize_t got = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got < 0) return errno == EAGAIN || errno == EINTR;
      if (got == 0) return false;
      try {
        net::write_all(*waiter_, to, std::span(bytes).first(static_cast<std::size_t>(got)),
                       steady_now() + seconds(5), "the other end");
      } catch (const Error&) {
        return false;
      }
    }
  }

  const std::shared_ptr<RealWaiter> waiter_ = RealWaiter::make(Duration::zero());
  const net::Listener listener_ = net::listen_tcp("127.0.0.1");
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::string target_;                            // guarded by mutex_
  std::vector<Connection> connections_, silent_;  // guarded by mutex_
  std::thread thread_;
};

struct SilentNetwork : ::testing::Test {
  SilentNetwork() {
    client.watch([](const News&) {});
  }
  ~SilentNetwork() override { client.stop_watching(); }
  // Another coordinator follows the one that does not answer any more.
  void vanish(CoordinatorOptions next) {
    network.vanish();
    first.reset();
    second = std::make_unique<Coordinator>(std::move(next));
    network.lead_to(second->endpoint());
  }

  const std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  std::unique_ptr<Coordinator> first = std::make_unique<Coordinator>(options_for(store)), second;
  Network network{first->endpoint()};
  CoordinatorClient client{{.endpoint = network.endpoint(),
                            .secret = kSecret,
                            .rank = 0,
                            .host = "host",
                            .timeout = seconds(5)}};
};

TEST_F(SilentNetwork, AFarewellReachesTheNextCoordinator) {
  Event left;
  auto options = options_for(store);
  options.on_left = [&](int process, int code) {
    EXPECT_EQ(process, 0);
    EXPECT_EQ(code, 143);
    left.set();
  };
  vanish(std::move(options));
  client.stop_watching();
  client.leave(143);
  EXPECT_TRUE(left.wait(milliseconds(1))) << "before the process ends";
}

TEST_F(SilentNetwork, TheNextCoordinatorHearsThatAWorkerTrainsOnItsOwn) {
  vanish(options_for(store));
  std::thread telling([&] { client.tell_alone(); });
  Event pauses;  // never set
  pauses.wait(milliseconds(1500));
  network.close_silent();
  telling.join();
  EXPECT_TRUE(second->trains_alone(0));
}

}  // namespace
}  // namespace trireme::rendezvous
