#include "trireme/ps/server/service_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/ps/figures.h"
#include "trireme/ps/rows/row_message.h"

namespace trireme::inline v0::ps::service_test {
namespace {

// SGD with momentum 0.9 and scale 0.5, as the server computes it.
struct Reference {
  Floats weights, momentum;
  int steps = 0;
  void step(const Floats& gradient, float rate) {
    if (momentum.empty()) momentum.assign(weights.size(), 0);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const float g = gradient[i] * 0.5f;
      momentum[i] = steps == 0 ? g : std::fma(momentum[i], 0.9f, g);
      weights[i] -= rate * momentum[i];
    }
    ++steps;
  }
};

// Between parameters there are gaps.
void expect_near(const ServedModel& model, const Floats& a, const Floats& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const ServedModel::Slice& slice : model.slices(0))
    for (std::size_t i = 0; i < slice.size(); ++i)
      ASSERT_NEAR(a[slice.offset / 4 + i], b[slice.offset / 4 + i], 1e-5) << i;
}

TEST(ServedModel, CutsAllParametersEvenlyAtChunks) {
  const ServedModel model(parameters(), 3);
  std::vector<std::int64_t> next(4, 0);
  for (int server = 0; server < 3; ++server) {
    for (const ServedModel::Slice& slice : model.slices(server)) {
      EXPECT_EQ(slice.begin, next[slice.parameter]);
      EXPECT_EQ(slice.begin % 4096, 0);
      EXPECT_EQ(slice.offset % 64, 0u);
      EXPECT_LE(slice.offset + slice.bytes(), model.bytes(server));
      next[slice.parameter] = slice.end;
    }
    EXPECT_NEAR(static_cast<double>(model.bytes(server)), 4 * 21'307 / 3.0, 4 * 4096);
  }
  EXPECT_EQ(next, (std::vector<std::int64_t>{12'300, 7, 0, 9000}));
  EXPECT_EQ(ServedModel::from_text(model.to_text()).difference(model), "");
  EXPECT_NE(ServedModel(parameters(), 20).describe().find("nothing"), std::string::npos);
}

TEST(Service, PushesAreAppliedInTheOrderOfTheirArrival) {
  Server server;
  const Settings settings = settings_of(-1, 2);
  const std::size_t bytes = settings.model.bytes(0);
  ASSERT_EQ(server.attach(0, settings)->exit_code, 0);
  ASSERT_EQ(server.attach(1, settings)->exit_code, 0);
  EXPECT_EQ(server.ask(1, {.ask = Ask::Pull, .worker = 1}), nullptr);  // no weights yet
  Reference expected{random_floats(bytes, 1)};
  server.write(0, expected.weights);
  ASSERT_NE(server.reply(1), nullptr);
  EXPECT_EQ(server.floats(1), expected.weights);
  const Floats first = random_floats(bytes, 2), second = random_floats(bytes, 3);
  EXPECT_EQ(server.push(0, 1, first)->staleness, 0);
  EXPECT_EQ(server.push(1, 1, second, 0, 0.2)->staleness, 1);
  expected.step(first, 0.1f);
  expected.step(second, 0.2f);
  expect_near(settings.model, server.floats(1), expected.weights);
  EXPECT_EQ(server.service().version(), 2);
}

TEST(Service, WeightsAndStateAreReadIntoMemoryOfTheClients) {
  Server server;
  const Settings settings = settings_of(-1, 1);
  std::vector<std::byte> room;
  server.attach(0, settings);
  server.write(0, random_floats(settings.model.bytes(0), 1));
  server.push(0, 1, random_floats(settings.model.bytes(0), 2));
  const Reply copied = *server.ask(0, {.ask = Ask::Read, .worker = 0});
  const std::vector<std::byte> expected(server.memory(0).begin(), server.memory(0).end());
  EXPECT_FALSE(copied.written);
  server.set_room([&](int, std::size_t bytes) {
    room.resize(bytes);
    return std::span(room);
  });
  const Reply written = *server.ask(0, {.ask = Ask::Read, .worker = 0});
  EXPECT_TRUE(written.written);
  EXPECT_EQ(written.text_bytes, copied.text_bytes);
  EXPECT_EQ(room, expected);
}

TEST(Service, ThereIsNoMemoryToRead) {
  Server server;
  const Settings settings = settings_of(-1, 1);
  server.attach(0, settings);
  const Floats weights = random_floats(settings.model.bytes(0), 1);
  server.write(0, weights);
  server.set_room([](int, std::size_t) -> std::span<std::byte> { throw std::bad_alloc(); });
  const Reply refused = *server.ask(0, {.ask = Ask::Read, .worker = 0});
  EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::Resource));
  EXPECT_NE(refused.text.find("not enough memory"), std::string::npos) << refused.text;
  EXPECT_EQ(server.ask(0, {.ask = Ask::Pull, .worker = 0})->exit_code, 0);
  EXPECT_EQ(server.floats(0), weights);
}

// The connection broke before the answer came.
TEST(Service, ARepeatedPushIsAnsweredWithTheSameWeights) {
  Server server;
  const Settings settings = settings_of(-1, 2);
  const std::size_t bytes = settings.model.bytes(0);
  for (const int worker : {0, 1}) server.attach(worker, settings);
  server.write(0, random_floats(bytes, 1));
  for (const std::uint64_t sequence : {1u, 2u})
    server.push(0, sequence, random_floats(bytes, 2), static_cast<std::int64_t>(sequence) - 1);
  const Floats gradient = random_floats(bytes, 3);
  const Reply first = *server.push(1, 1, gradient);
  EXPECT_EQ(first.staleness, 2);
  const Floats weights = server.floats(1);
  server.service().lost(1);
  server.attach(1, settings);
  const Reply again = *server.push(1, 1, gradient);
  EXPECT_EQ(again.staleness, 2);
  EXPECT_EQ(again.version, first.version);
  EXPECT_EQ(server.floats(1), weights);
}

// While they are updated; not those that a worker must wait for.
TEST(Service, WeightsAreWrittenWhereTheClientWantsThem) {
  const Settings settings{.model = ServedModel(parameters(), 1),
                          .optimizer = Sgd{},
                          .workers = 2,
                          .server = {.staleness = 1}};
  Server server(0);
  std::vector<std::byte> room(settings.model.bytes(0));
  server.set_room([&](int client, std::size_t bytes) {
    EXPECT_EQ(bytes, room.size());
    return client == 0 ? std::span(room) : std::span<std::byte>();
  });
  for (const int client : {0, 1}) server.attach(client, settings);
  server.write(0, Floats(room.size() / 4, 1));
  const Floats gradient(room.size() / 4, 2);
  EXPECT_TRUE(server.push(0, 1, gradient)->written);
  for (const ServedModel::Slice& slice : settings.model.slices(0)) {
    const std::size_t bytes = slice.bytes();
    EXPECT_EQ(
        std::memcmp(room.data() + slice.offset, server.memory(0).data() + slice.offset, bytes), 0);
  }
  EXPECT_FALSE(server.push(1, 1, gradient)->written);
  EXPECT_TRUE(server.push(0, 2, gradient)->written);
  EXPECT_EQ(server.push(0, 3, gradient), nullptr);  // waits for worker 1
  EXPECT_FALSE(server.push(1, 2, gradient)->written);
  EXPECT_FALSE(server.reply(0)->written);
}

TEST(Service, ARepeatedPushHasNoSecondEffect) {
  Server server;
  const Settings settings = settings_of(-1, 1);
  server.attach(0, settings);
  server.write(0, random_floats(settings.model.bytes(0), 1));
  const Floats gradient = random_floats(settings.model.bytes(0), 2);
  server.push(0, 1, gradient);
  const Floats weights = server.floats(0);
  server.service().lost(0);
  EXPECT_EQ(server.attach(0, settings)->sequence, 1u);
  EXPECT_EQ(server.push(0, 1, gradient)->version, 1);
  EXPECT_EQ(server.floats(0), weights);
  const auto figures = nlohmann::json::parse(server.service().figures());
  EXPECT_EQ(figures["workers"]["0"]["pushes"], 1);
  EXPECT_EQ(figures["workers"]["0"]["repeated"], 1);
}

TEST(Service, AWorkerWaitsForTheSlowestBeyondTheBound) {
  Server server;
  const Settings settings = settings_of(2, 2);
  const Floats gradient = random_floats(settings.model.bytes(0), 2);
  server.attach(0, settings);
  server.attach(1, settings);
  server.write(0, gradient);
  EXPECT_NE(server.push(0, 1, gradient), nullptr);
  EXPECT_NE(server.push(0, 2, gradient), nullptr);
  EXPECT_EQ(server.push(0, 3, gradient), nullptr);  // 3 ahead
  EXPECT_NE(server.push(1, 1, gradient), nullptr);
  EXPECT_NE(server.reply(0), nullptr);
  EXPECT_EQ(server.push(0, 4, gradient), nullptr);
  server.service().lost(1);  // nobody waits for a worker that is gone
  EXPECT_NE(server.reply(0), nullptr);
  // One that comes starts at the clock of the slowest.
  EXPECT_EQ(server.attach(1, settings)->slowest, 4);
  EXPECT_NE(server.push(0, 5, gradient), nullptr);
  EXPECT_NE(server.push(0, 6, gradient), nullptr);
  EXPECT_EQ(server.push(0, 7, gradient), nullptr);
}

TEST(Service, AGradientThatIsNotFiniteIsDroppedAndNamed) {
  Server server;
  const Settings settings = settings_of(-1, 1);
  server.attach(0, settings);
  const Floats weights = random_floats(settings.model.bytes(0), 1);
  server.write(0, weights);
  Floats gradient = random_floats(settings.model.bytes(0), 2);
  gradient.back() = std::numeric_limits<float>::quiet_NaN();
  gradient[gradient.size() - 60] = std::numeric_limits<float>::infinity();
  const Reply* reply = server.push(0, 1, gradient);
  EXPECT_TRUE(reply->dropped);
  EXPECT_EQ(reply->text, "v");
  EXPECT_EQ(server.floats(0), weights);
  EXPECT_EQ(nlohmann::json::parse(server.service().figures())["workers"]["0"]["dropped"], 1);
}

// Trainings look before they push, so a server reads the gradient once less.
TEST(Service, AGradientThatItsWorkerHasLookedAtIsTakenAsItIs) {
  Server server, other;
  const Settings settings = settings_of(-1, 1);
  const Floats weights = random_floats(settings.model.bytes(0), 1),
               gradient = random_floats(settings.model.bytes(0), 2);
  for (Server* one : {&server, &other}) {
    one->attach(0, settings);
    one->write(0, weights);
  }
  server.push(0, 1, gradient, 0, 0.1, /*finite=*/true);
  other.push(0, 1, gradient);
  EXPECT_EQ(server.floats(0), other.floats(0));
  const Floats none(gradient.size(), std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(server.push(0, 2, none, 0, 0.1, /*finite=*/true)->dropped);
  EXPECT_TRUE(other.push(0, 2, none)->dropped);
}

Request terms_of(int worker, std::int64_t round, std::uint32_t total, int workers) {
  Request request{.ask = Ask::Terms, .worker = worker, .round = round, .total = total};
  request.nodes = kernel::maximal_nodes(kernel::contiguous_share(total, workers, worker), total);
  return request;
}

TEST(Service, ASynchronousRoundIsTheTreeSumWhateverTheOrderOfArrival) {
  const std::uint32_t total = 7;
  const Settings settings = settings_of(0, 3);
  const std::size_t bytes = settings.model.sum_bytes(0);
  Floats sums[2];
  for (int order = 0; order < 2; ++order) {
    Server server;
    for (int worker = 0; worker < 3; ++worker) server.attach(worker, settings);
    server.write(0, random_floats(bytes, 1));
    std::vector<Floats> memory;
    for (int worker = 0; worker < 3; ++worker)
      memory.push_back(random_floats(bytes * terms_of(worker, 0, total, 3).nodes.size(),
                                     10 + static_cast<unsigned>(worker)));
    for (const int worker : order == 0 ? std::vector{0, 1, 2} : std::vector{2, 0, 1}) {
      EXPECT_EQ(server.reply(worker) != nullptr && server.reply(worker)->ask == Ask::Terms, false);
      server.ask(worker, terms_of(worker, 0, total, 3),
                 bytes_of(memory[static_cast<std::size_t>(worker)]));
    }
    EXPECT_EQ(server.reply(1)->not_finite, -1);
    for (int worker = 0; worker < 3; ++worker)
      server.ask(worker,
                 {.ask = Ask::Commit, .worker = worker, .round = 0, .rate = 0.1, .scale = 1.0 / 7});
    EXPECT_EQ(server.reply(2)->version, 1);
    sums[order] = server.floats(2);
  }
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(Service, TermsAndCommitsMayBeRepeatedAndLateOnesAreDropped) {
  Server server;
  Settings settings = settings_of(0, 3);
  settings.server.backup = 1;
  const Floats gradient = random_floats(settings.model.sum_bytes(0), 1);
  for (int worker = 0; worker < 3; ++worker) server.attach(worker, settings);
  server.write(0, gradient);
  const auto send = [&](int worker) {
    return server.ask(worker, terms_of(worker, 0, 4, 4), bytes_of(gradient));
  };
  EXPECT_EQ(send(2), nullptr);
  EXPECT_NE(send(0), nullptr);  // the second of three: one is not waited for
  ASSERT_NE(server.reply(2), nullptr);
  EXPECT_FALSE(send(0)->dropped);  // after a lost connection
  const Request commit{.ask = Ask::Commit, .worker = 0, .round = 0, .rate = 0.1};
  EXPECT_EQ(server.ask(0, commit)->version, 1);
  EXPECT_EQ(server.ask(0, commit)->version, 1);
  EXPECT_TRUE(send(1)->dropped);
  EXPECT_TRUE(send(1)->dropped);
  EXPECT_EQ(server.reply(1)->round, 1);
  const auto figures = ServerFigures::from_text("[" + server.service().figures() + "]");
  EXPECT_EQ(figures.pushes, (std::vector<std::int64_t>{1, 0, 1}));
  EXPECT_EQ(figures.late, 1);  // told twice
  EXPECT_EQ(figures.staleness, (std::map<std::int64_t, std::int64_t>{{0, 2}}));
}

// The memory for weights that workers read in place may be refused: there is a limit on it.
TEST(Service, AWorkerMayAttachAgainAfterMemoryWasRefused) {
  bool refuses = true;
  std::vector<Reply> replies;
  const auto shard = [&](int, std::size_t) -> std::span<std::byte> {
    if (refuses) throw ResourceError("shared memory is above the limit", {});
    return {};
  };
  Service service(
      0, [&](int, const Reply& reply, std::span<const std::byte>) { replies.push_back(reply); }, {},
      in_one_part, {.shard = shard});
  const std::string text = settings_of(0, 2).to_text();
  const auto attach = [&](int worker) {
    service.handle(worker, {.ask = Ask::Attach, .worker = worker, .text_bytes = text.size()},
                   std::as_bytes(std::span(text)));
    return replies.back();
  };
  EXPECT_NE(attach(0).text.find("above the limit"), std::string::npos);
  EXPECT_EQ(service.settings(), nullptr);
  EXPECT_EQ(service.clients(), std::vector<int>());
  refuses = false;
  EXPECT_EQ(attach(1).exit_code, 0);
  EXPECT_EQ(attach(0).exit_code, 0);
}

TEST(Service, FiguresAreOfAllServers) {
  Settings settings = settings_of(-1, 2);
  settings.model = ServedModel(parameters(), 2);
  std::string text;
  for (int number = 0; number < 2; ++number) {
    Server server(number);
    for (int worker = 0; worker < 2; ++worker) server.attach(worker, settings);
    const std::size_t bytes = settings.model.bytes(number);
    server.write(0, random_floats(bytes, 1));
    server.push(0, 1, random_floats(bytes, 2), 0);
    for (int i = 0; i <= number; ++i) server.push(1, 1, random_floats(bytes, 3), 0);
    text += (number > 0 ? "," : "[") + server.service().figures();
  }
  const ServerFigures figures = ServerFigures::from_text(text + "]");
  EXPECT_EQ(figures.servers, 2);
  EXPECT_EQ(figures.updates, 2);
  EXPECT_EQ(figures.pushes, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(figures.repeated, 1);
  EXPECT_EQ(figures.staleness, (std::map<std::int64_t, std::int64_t>{{0, 2}, {1, 2}}));
  EXPECT_THROW(ServerFigures::from_text("[{}]"), MismatchError);
  EXPECT_THROW(ServerFigures::from_text(text), MismatchError);
}

// Two services with the same requests; in the middle a third takes over from one of them.
TEST(Service, ASnapshotGoesOnAsTheServiceDoes) {
  const Settings settings = settings_of(0, 3);
  const std::size_t bytes = settings.model.sum_bytes(0);
  Server server, other;
  for (int worker = 0; worker < 3; ++worker) server.attach(worker, settings);
  server.write(0, random_floats(bytes, 1));
  std::vector<Floats> memory;
  for (int worker = 0; worker < 3; ++worker)
    memory.push_back(random_floats(bytes * terms_of(worker, 0, 7, 3).nodes.size(),
                                   10 + static_cast<unsigned>(worker)));
  const auto send = [&](Server& to, int worker) {
    return to.ask(worker, terms_of(worker, 0, 7, 3),
                  bytes_of(memory[static_cast<std::size_t>(worker)]));
  };
  send(server, 2);
  send(server, 0);
  const Saved early = server.service().snapshot();  // two of three terms are there
  other.service().restore(early.text, early.memory);
  EXPECT_EQ(other.service().clients(), (std::vector<int>{0, 1, 2}));
  send(server, 1);
  send(other, 1);
  ASSERT_NE(other.reply(0), nullptr);
  EXPECT_EQ(other.floats(2), server.floats(2));
  const Saved late = other.service().snapshot();  // the sum is not applied yet
  Server third;
  third.service().restore(late.text, late.memory);
  const Request commit{.ask = Ask::Commit, .worker = 1, .round = 0, .rate = 0.1, .scale = 0.5};
  server.ask(1, commit);
  EXPECT_EQ(third.ask(1, commit)->version, 1);
  EXPECT_EQ(third.floats(1), server.floats(1));
  EXPECT_EQ(third.service().snapshot().text, server.service().snapshot().text);
}

// Terms with rows of two embedding tables: in each node rows that all workers have, and one of its own.
std::vector<std::byte> add_rows(Request& request, const Settings& settings, const Floats& dense,
                                int worker) {
  std::vector<std::byte> memory(rows_offset(4 * dense.size()));
  std::memcpy(memory.data(), dense.data(), 4 * dense.size());
  for (std::size_t node = 0; node < request.nodes.size(); ++node)
    for (const ServedTable& table : settings.model.tables()) {
      const std::vector<std::int64_t> ids{5, 8, 1000 + worker};
      const Floats rows =
          random_floats(4 * ids.size() * static_cast<std::size_t>(table.width),
                        100 + static_cast<unsigned>(10 * worker) + static_cast<unsigned>(node));
      request.rows.push_back(static_cast<std::uint32_t>(ids.size()));
      const std::size_t at = memory.size();
      memory.resize(at + row_bytes(std::span(&table, 1), std::vector<std::uint32_t>{3}));
      std::memcpy(memory.data() + at, ids.data(), 8 * ids.size());
      std::memcpy(memory.data() + at + 8 * ids.size(), rows.data(), 4 * rows.size());
    }
  return memory;
}

// The same with embeddings, over three rounds: rows that exist, those that are being added, and those
// whose sum waits for its commit are in a snapshot.
TEST(Service, ASnapshotHasTheRowsOfEmbeddings) {
  Settings settings = settings_of(0, 2);
  settings.elastic = true;
  settings.model = ServedModel(
      parameters(), 1, {},
      {{.name = "items", .width = 3, .bound = 0.5}, {.name = "users", .width = 2, .max_rows = 3}});
  const std::size_t bytes = settings.model.sum_bytes(0);
  std::deque<Server> servers(1);
  for (int worker = 0; worker < 2; ++worker) servers[0].attach(worker, settings);
  servers[0].write(0, random_floats(bytes, 1));
  std::deque<std::vector<std::byte>> memory;
  for (int round = 0; round < 3; ++round) {
    for (int worker = 0; worker < 2; ++worker) {
      Request terms = terms_of(worker, round, 7, 2);
      const Floats dense =
          random_floats(bytes * terms.nodes.size(), static_cast<unsigned>(20 + round));
      memory.push_back(add_rows(terms, settings, dense, worker + round));
      for (Server& server : servers) server.ask(worker, terms, memory.back());
      const Saved saved = servers[0].service().snapshot();
      servers.emplace_back().service().restore(saved.text, saved.memory);
    }
    for (Server& server : servers)
      server.ask(1, {.ask = Ask::Commit, .worker = 1, .round = round, .rate = 0.1, .scale = 0.5});
  }
  const Saved expected = servers[0].service().snapshot();
  EXPECT_NE(expected.text.find("\"rows\":[[4,4],[4,"), std::string::npos) << expected.text;
  for (Server& server : servers) {
    const Saved saved = server.service().snapshot();
    EXPECT_EQ(saved.text, expected.text);
    EXPECT_EQ(saved.memory, expected.memory);
  }
}

TEST(Service, ASnapshotThatIsNoneIsRefused) {
  Server server, other;
  const Settings settings = settings_of(-1, 1);
  server.attach(0, settings);
  server.write(0, random_floats(settings.model.bytes(0), 1));
  const Saved all = server.service().snapshot();
  EXPECT_THROW(other.service().restore("{", all.memory), MismatchError);
  EXPECT_THROW(other.service().restore(all.text, std::span(all.memory).first(100)), MismatchError);
}

TEST(Service, MoreReplicasThanServersAreRefused) {
  Settings settings = settings_of(-1, 1);
  settings.model = ServedModel(parameters(), 2);
  Settings other = settings;
  settings.server.replicas = 3;
  EXPECT_THROW(settings.check(), ConfigError);
  settings.server.replicas = 0;
  EXPECT_THROW(settings.check(), ConfigError);
  settings.server.replicas = 2;
  settings.check();
  EXPECT_NE(settings.difference(other).find("its server.replicas is 1"), std::string::npos);
}

TEST(Service, AnotherModelIsRefusedWithTheDifference) {
  Server server;
  server.attach(0, settings_of(-1, 2));
  std::vector<ServedParameter> other = parameters();
  other[3].shape = {9001};
  Settings settings = settings_of(-1, 2);
  settings.model = ServedModel(other, 1);
  const Reply* reply = server.attach(1, settings);
  EXPECT_EQ(reply->exit_code, 23);
  EXPECT_EQ(reply->text,
            "server 0 refuses worker 1: its v is F32 [9001], the server's is F32 [9000]");
  const std::string sent = to_text(*reply);
  EXPECT_NE(reply_from(std::as_bytes(std::span(sent))).advice.find("same model"),
            std::string::npos);
  settings = settings_of(4, 2);
  EXPECT_NE(server.attach(1, settings)->text.find("its server.staleness is 4"), std::string::npos);
  EXPECT_THROW(settings_of(-2, 2).check(), ConfigError);
}

TEST(Service, WhatWasReadCanBeWrittenToAnotherServer) {
  Server server, other;
  const Settings settings = settings_of(-1, 1);
  server.attach(0, settings);
  server.write(0, random_floats(settings.model.bytes(0), 1));
  for (unsigned i = 1; i <= 3; ++i)
    server.push(0, i, random_floats(settings.model.bytes(0), 5 + i));
  const Reply* saved = server.ask(0, {.ask = Ask::Read, .worker = 0});
  EXPECT_EQ(SavedText::from_text(server.text(0)).step_count, 3);
  other.attach(0, settings);
  EXPECT_EQ(other
                .ask(0, {.ask = Ask::Write, .worker = 0, .text_bytes = saved->text_bytes},
                     server.memory(0))
                ->version,
            3);
  const Floats gradient = random_floats(settings.model.bytes(0), 20);
  server.push(0, 4, gradient);
  other.push(0, 4, gradient);
  EXPECT_EQ(server.floats(0), other.floats(0));
}

}  // namespace
}  // namespace trireme::inline v0::ps::service_test
