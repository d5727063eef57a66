// Requests and copies that no correct worker or server sends.
#include <gtest/gtest.h>

#include "trireme/net/sim/sim_channels.h"
#include "trireme/ps/copies/relay.h"
#include "trireme/ps/server/server.h"
#include "trireme/ps/server/service_test.h"

namespace trireme::inline v0::ps::malformed_test {
namespace {

using namespace service_test;
using namespace std::chrono_literals;

TEST(Malformed, RowsOfNoTableAreRefused) {
  Settings settings = settings_of(-1, 1);
  settings.model = ServedModel(parameters(), 1, {}, {{.name = "items", .width = 3}});
  Server server;
  server.attach(0, settings);
  server.write(0, random_floats(settings.model.bytes(0), 1));
  const Reply* reply = server.ask(0, {.ask = Ask::PullRows, .worker = 0});
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(reply->exit_code, static_cast<int>(ExitCode::Mismatch));
}

// A primary that is no server of ours: rank 0.
TEST(Malformed, ACopyThatCannotBeReadIsNoCopy) {
  rendezvous::ServerAuthority authority(2);
  authority.up(0, "sim:0");
  authority.up(1, "sim:1");
  const auto view = std::make_shared<const rendezvous::ServerView>(authority.view());
  Server own;
  const Settings settings = settings_of(-1, 1, 2);
  own.attach(0, settings);
  own.write(0, random_floats(settings.model.bytes(0), 1));
  const Saved saved = own.service().snapshot();
  const auto text = std::as_bytes(std::span(saved.text));
  std::vector<std::byte> all(text.begin(), text.end());
  all.insert(all.end(), saved.memory.begin(), saved.memory.end());

  net::SimNetwork network(2);
  net::SimChannels channels(network);
  bool ended = false;
  network.run([&](int rank) {
    const auto waiter = network.waiter(rank);
    if (rank == 1) {
      const auto acceptor = channels.listen(1);
      ParameterServer server(waiter, *acceptor,
                             {.number = 1, .contacts = {.view = [&] { return view; }}});
      return server.run([&] { return ended; });
    }
    waiter->sleep(1ms);  // rank 1 listens
    net::ChannelFrame frame;
    const auto say = [&](net::Channel& channel, const Relay& relay,
                         std::span<const std::byte> memory = {}) {
      const std::string head = to_text(relay);
      channel.send(std::as_bytes(std::span(head)), memory).wait();
      channel.receive(frame).wait();
      return heard_from(frame.head()).at;
    };
    const std::uint64_t term = view->shards[0].term;
    const Relay hello{.kind = Relay::Kind::Hello, .term = term};
    const Relay copy{.kind = Relay::Kind::Snapshot,
                     .term = term,
                     .at = {.term = term, .index = 5},
                     .text_bytes = text.size()};
    const auto channel = channels.dial(0, "sim:1");
    EXPECT_EQ(say(*channel, hello), Position{});
    EXPECT_EQ(say(*channel, copy, all), copy.at);
    EXPECT_THROW(say(*channel, copy, std::span(all).first(all.size() - 100)), PeerLost);
    EXPECT_EQ(say(*channels.dial(0, "sim:1"), hello), Position{});
    ended = true;
    network.waiter(1)->wake();
  });
}

}  // namespace
}  // namespace trireme::inline v0::ps::malformed_test
