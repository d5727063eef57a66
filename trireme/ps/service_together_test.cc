// Pushes and commits that a Service serves together are answered as those that it serves one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "trireme/ps/server/service_test.h"

namespace trireme::inline v0::ps::service_test {
namespace {

// Requests of four workers at a server that applies pushes together, and at one that does not.
class TogetherOrNot {
 public:
  TogetherOrNot(Settings settings, unsigned seed) : settings_(std::move(settings)), random_(seed) {
    const std::size_t bytes = settings_.model.bytes(0);
    for (int client = 0; client < settings_.workers; ++client) rooms_.emplace_back(bytes);
    together_.set_room([this](int client, std::size_t wanted) {
      const bool has_room = client != 3 && wanted == rooms_[client].size();  // for weights
      return has_room ? std::span(rooms_[client]) : std::span<std::byte>();
    });
    together_.apply_together();
    for (int client = 0; client < settings_.workers; ++client)
      for (Server* one : {&together_, &alone_}) one->attach(client, settings_);
    for (Server* one : {&together_, &alone_}) one->write(0, random_floats(bytes, seed));
  }

  void run() {
    for (int i = 0; i < 60; ++i) {
      const int client = static_cast<int>(random_() % rooms_.size());
      if (random_() % 4 == 0 && together_.service().under_way()) {
        together_.service().advance();
      } else if (!waits_[client]) {
        ask(client);
      }
      compare_answers();
    }
    const std::string text = together_.service().snapshot().text;  // applies all that were pushed
    compare_answers();
    EXPECT_EQ(text, alone_.service().snapshot().text);
    for (Server* one : {&together_, &alone_}) one->ask(0, {.ask = Ask::Read, .worker = 0});
    ASSERT_EQ(together_.memory(0).size(), alone_.memory(0).size());
    EXPECT_TRUE(std::ranges::equal(together_.memory(0), alone_.memory(0)));
    EXPECT_EQ(together_.service().figures(), alone_.service().figures());
  }

 private:
  void ask(int client) {
    waits_[client] = true;
    const unsigned kind = random_() % 12;
    if (kind == 0) {
      for (Server* one : {&together_, &alone_}) one->ask(client, {.worker = client}, {});
    } else if (kind == 1) {  // its process is started again
      for (Server* one : {&together_, &alone_}) {
        one->service().lost(client);
        one->attach(client, settings_);
      }
    } else {
      if (kind != 2) ++sequences_[client];  // else it repeats its last push
      gradients_[client] = random_floats(settings_.model.bytes(0), random_());
      if (kind == 3) gradients_[client][5] = std::numeric_limits<float>::infinity();
      const std::int64_t version = versions_[client];
      for (Server* one : {&together_, &alone_})
        one->push(client, std::max<std::uint64_t>(sequences_[client], 1), gradients_[client],
                  version);
      sequences_[client] = std::max<std::uint64_t>(sequences_[client], 1);
    }
  }

  void compare_answers() {
    for (int client = 0; client < settings_.workers; ++client) {
      const Reply* reply = together_.reply(client);
      if (!waits_[client] || reply == nullptr) continue;
      waits_[client] = false;
      if (reply->ask == Ask::Push) versions_[client] = reply->version;
      ASSERT_NE(alone_.reply(client), nullptr);
      Reply same = *reply;
      same.written = false;
      EXPECT_EQ(to_text(same), to_text(*alone_.reply(client)));
      ASSERT_EQ(together_.memory(client).size(), alone_.memory(client).size());
      if (together_.memory(client).empty()) continue;
      for (const ServedModel::Slice& slice : settings_.model.slices(0))
        EXPECT_EQ(std::memcmp(together_.memory(client).data() + slice.offset,
                              alone_.memory(client).data() + slice.offset, slice.bytes()),
                  0);
    }
  }

  const Settings settings_;
  std::mt19937 random_;
  std::vector<std::vector<std::byte>> rooms_;
  Server together_, alone_;
  std::map<int, bool> waits_;
  std::map<int, std::uint64_t> sequences_;
  std::map<int, std::int64_t> versions_;
  std::map<int, Floats> gradients_;  // stay until they are applied
};

TEST(Service, PushesAppliedTogetherAreAnsweredAsThoseOneByOne) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Settings settings = settings_of(seed % 3 == 0 ? 2 : -1, 4);
    settings.server.prediction = seed % 2 == 0;
    if (seed % 5 == 0) settings.optimizer = AdamW{.learning_rate = 0.01};
    if (seed % 7 == 1) settings.server.prediction = false, settings.server.compensation = 0.1;
    TogetherOrNot(settings, seed).run();
  }
}

// Three synchronous workers, the third without memory for its replies. The first commit updates; the
// others join it or come later. In every second trial the first two read the server's memory.
TEST(Service, CommitsServedTogetherAreAnsweredAsThoseOneByOne) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Settings settings = settings_of(0, 3);
    const std::size_t bytes = settings.model.bytes(0);
    Server together, alone;
    std::vector<std::vector<std::byte>> rooms(3, std::vector<std::byte>(bytes));
    together.set_room([&](int client, std::size_t) {
      return client == 2 ? std::span<std::byte>() : std::span(rooms[client]);
    });
    together.apply_together();
    const bool in_place = seed % 2 == 1;
    if (in_place) together.set_readers({0, 1}, bytes);
    for (Server* one : {&together, &alone}) {
      for (const int worker : {0, 1, 2}) one->attach(worker, settings);
      one->write(0, random_floats(bytes, seed));
    }
    for (std::int64_t round = 0; round < 4; ++round) {
      std::vector<Floats> leaves;
      std::vector<int> order{0, 1, 2};
      for (int worker = 0; worker < 3; ++worker) leaves.push_back(random_floats(bytes, random()));
      for (const int worker : order)
        for (Server* one : {&together, &alone})
          one->ask(worker,
                   {.ask = Ask::Terms,
                    .worker = worker,
                    .round = round,
                    .total = 3,
                    .nodes = {{static_cast<std::uint32_t>(worker), 1}}},
                   bytes_of(leaves[static_cast<std::size_t>(worker)]));
      EXPECT_TRUE(std::ranges::equal(together.memory(0), alone.memory(0))) << "sums of squares";
      std::shuffle(order.begin(), order.end(), random);
      for (const int worker : order) {
        const Request commit{
            .ask = Ask::Commit, .worker = worker, .round = round, .rate = 0.1, .scale = 0.5};
        for (Server* one : {&together, &alone}) one->ask(worker, commit);
        if (random() % 2 == 0 && together.service().under_way()) together.service().advance();
      }
      while (together.service().under_way()) together.service().advance();
      for (const int worker : order) {
        ASSERT_NE(together.reply(worker), nullptr);
        EXPECT_EQ(together.reply(worker)->written, worker != 2);
        EXPECT_EQ(together.reply(worker)->in_place, in_place && worker != 2);
        EXPECT_EQ(together.reply(worker)->version, alone.reply(worker)->version);
        if (in_place && worker != 2) {
          EXPECT_TRUE(std::ranges::equal(together.memory(worker), together.shared()));
        }
        for (const ServedModel::Slice& slice : settings.model.slices(0))
          EXPECT_EQ(std::memcmp(together.memory(worker).data() + slice.offset,
                                alone.memory(worker).data() + slice.offset, slice.bytes()),
                    0)
              << "worker " << worker;
      }
    }
  }
}

// Two workers make a round. A third one must not close it in place of one that may still read.
TEST(Service, NoRoundIsClosedWhileAWorkerMayRead) {
  const Settings settings = settings_of(0, 2);
  const std::size_t bytes = settings.model.bytes(0);
  Server server;
  server.set_readers({0, 1, 2}, bytes);
  for (const int worker : {0, 1, 2}) server.attach(worker, settings);
  server.write(0, random_floats(bytes, 1));
  const Floats leaf = random_floats(bytes, 2);
  const auto terms = [&](int worker, std::int64_t round) {
    return server.ask(worker,
                      {.ask = Ask::Terms,
                       .worker = worker,
                       .round = round,
                       .total = 3,
                       .nodes = {{static_cast<std::uint32_t>(worker), 1}}},
                      bytes_of(leaf));
  };
  for (const int worker : {0, 1}) terms(worker, 0);
  for (const int worker : {0, 1}) {
    const Reply* reply = server.ask(
        worker, {.ask = Ask::Commit, .worker = worker, .round = 0, .rate = 0.1, .scale = 0.5});
    ASSERT_NE(reply, nullptr);
    EXPECT_TRUE(reply->in_place);
  }
  EXPECT_EQ(terms(1, 1), nullptr);
  EXPECT_EQ(terms(2, 1), nullptr);
  server.service().lost(0);
  EXPECT_NE(server.reply(1), nullptr);
  EXPECT_NE(server.reply(2), nullptr);
}

}  // namespace
}  // namespace trireme::inline v0::ps::service_test
