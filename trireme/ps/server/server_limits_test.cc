// Servers and workers whose connections, descriptors or memory come to an end.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fcntl.h>
#include <atomic>
#include <cstring>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/net/sim/sim_channels.h"
#include "trireme/ps/server/server.h"
#include "trireme/ps/worker/client.h"

namespace trireme::inline v0::ps::server_limits_test {
namespace {

using namespace std::chrono_literals;

Settings settings_of(std::int64_t size) {
  return {.model = ServedModel({{.name = "w", .shape = {size}}}, 1),
          .optimizer = Sgd{.learning_rate = 1},
          .server = {.staleness = -1}};
}

// A server at a unix socket, in a thread of its own.
class Serving {
 public:
  Serving() {
    options_.secret = "s3cret";
    options_.host = "";
    options_.max_frame_bytes = std::size_t{1} << 32;
    acceptor_ = net::listen_channels(waiter_, options_);
    thread_ = std::thread(
        [this] { ParameterServer(waiter_, *acceptor_, {}).run([this] { return ended_.load(); }); });
  }
  ~Serving() {
    ended_ = true;
    waiter_->wake();
    thread_.join();
  }
  const std::string& address() const { return acceptor_->address(); }
  std::shared_ptr<net::Channel> dial() const {
    return net::dial_channel(waiter_, address(), options_);
  }
  std::unique_ptr<ParameterClient> client(const Settings& settings, int worker = 0) const {
    return std::make_unique<ParameterClient>(
        waiter_, settings, ClientOptions{.worker = worker, .dial = [this](int) { return dial(); }});
  }
  Waiter& waiter() const { return *waiter_; }

 private:
  const std::shared_ptr<Waiter> waiter_ = RealWaiter::make();
  net::ChannelOptions options_;
  std::unique_ptr<net::Acceptor> acceptor_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

void push_ones(ParameterClient& client) {
  const std::span<std::byte> memory = client.gradient(0);
  const std::vector<float> ones(memory.size() / sizeof(float), -1);
  std::memcpy(memory.data(), ones.data(), memory.size());
  EXPECT_EQ(client.push(1, 1), std::nullopt);
}

float first(const ParameterClient& client) {
  float value = 0;
  std::memcpy(&value, client.weights(0).data(), sizeof value);
  return value;
}

void write_zeros(ParameterClient& client) {
  client.write(0,
               {SavedText{}.to_text(), std::vector<std::byte>(client.settings().model.bytes(0))});
  client.pull();
}

// The process may open no more files, and then it may again.
TEST(ServerLimits, AServerWithoutDescriptorsGoesOnWithItsWorkers) {
  Serving serving;
  const Settings settings = settings_of(100);
  const auto client = serving.client(settings);
  write_zeros(*client);
  push_ones(*client);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(before.rlim_cur, 1024);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<Descriptor> all;
  for (int next = 0; (next = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) all.emplace_back(next);
  all.pop_back();  // for this end of one more connection
  {
    const Descriptor caller =
        net::dial(serving.waiter(), serving.address(), serving.waiter().now() + 10s);
    for (int push = 0; push < 5; ++push) push_ones(*client);
  }
  all.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto late = serving.client(settings, 1);
  late->pull();
  EXPECT_EQ(first(*late), 6);
}

TEST(ServerLimits, AMessageThatIsNotKnownIsAnswered) {
  Serving serving;
  const auto channel = serving.dial();
  const std::string head = R"({"ask":0})";
  channel->send(std::as_bytes(std::span(head))).wait();
  net::ChannelFrame frame;
  channel->receive(frame).wait();
  const Reply reply = reply_from(frame.head());
  EXPECT_EQ(reply.exit_code, static_cast<int>(ExitCode::Refused));
  EXPECT_NE(reply.text.find("Run the same version of Trireme"), std::string::npos) << reply.text;
  EXPECT_THROW(channel->receive(frame).wait(), PeerLost);
}

// Memory above the allocator's largest threshold is given back to the system at once.
TEST(ServerLimits, WhatACheckpointReadsIsGivenBack) {
  Serving serving;
  const Settings settings = settings_of(12 << 20);
  const std::size_t bytes = settings.model.bytes(0);
  const auto client = serving.client(settings);
  write_zeros(*client);
  push_ones(*client);
  const std::size_t before = mallinfo2().hblkhd;
  EXPECT_EQ(client->read(0).memory.size(), bytes);
  push_ones(*client);
  EXPECT_LT(mallinfo2().hblkhd, before + bytes / 2);
}

// It takes every worker, and drops it at the first request.
TEST(ServerLimits, AWorkerDoesNotTryForEver) {
  net::SimNetwork network(2);
  net::SimChannels channels(network);
  const Settings settings = settings_of(10);
  bool ended = false;
  network.run([&](int rank) {
    const auto waiter = network.waiter(rank);
    if (rank == 1) {
      const auto acceptor = channels.listen(1);
      const std::string head = to_text(Reply{.ask = Ask::Attach, .ready = true});
      const TimePoint last = waiter->now() + 60s;
      while (!ended && waiter->now() < last) {
        std::shared_ptr<net::Channel> channel;
        const Work came = acceptor->accept(channel);
        waiter->wait_until([&] { return came.done() || ended; }, TimePoint::max());
        if (ended) break;
        net::ChannelFrame frame;
        channel->receive(frame).wait();
        channel->send(std::as_bytes(std::span(head))).wait();
        channel->receive(frame).wait();
        channel->close();
        waiter->sleep(1ms);
      }
      return;
    }
    waiter->sleep(1ms);  // rank 1 listens
    ShardLink link(waiter, 0, settings.to_text(),
                   {.dial = [&](int) { return channels.dial(0, "sim:1"); }, .patience = 2s});
    link.connect();
    link.ask({.ask = Ask::Pull}, 0, 40);
    const TimePoint begun = waiter->now();
    EXPECT_THROW(link.finish(), PeerLost);
    EXPECT_LT(waiter->now() - begun, 3s);
    ended = true;
    network.waiter(1)->wake();
  });
}

}  // namespace
}  // namespace trireme::inline v0::ps::server_limits_test
