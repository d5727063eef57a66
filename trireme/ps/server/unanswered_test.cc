// A connection that waits for an answer is not listened to, so its end is seen only after the answer: requests
// that cannot be met any more are answered, too.
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/ps/server/service_test.h"

namespace trireme::inline v0::ps::service_test {
namespace {

Settings elastic_settings(int workers) {
  Settings settings = settings_of(0, workers);
  settings.elastic = true;
  return settings;
}

const Reply* attach(Server& server, int client, int worker, std::int64_t epoch,
                    const Settings& settings) {
  const std::string text = settings.to_text();
  return server.ask(
      client, {.ask = Ask::Attach, .worker = worker, .epoch = epoch, .text_bytes = text.size()},
      std::as_bytes(std::span(text)));
}

// One micro-batch of the worker's.
const Reply* send_terms(Server& server, int client, int worker, const Floats& gradient,
                        std::uint32_t total = 2) {
  return server.ask(client,
                    {.ask = Ask::Terms,
                     .worker = worker,
                     .total = total,
                     .nodes = {{static_cast<std::uint32_t>(worker), 1}}},
                    bytes_of(gradient));
}

void expect_refused(const Reply* reply, Ask ask, ExitCode code, const std::string& why) {
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(reply->ask, ask);
  EXPECT_EQ(reply->exit_code, static_cast<int>(code));
  EXPECT_NE(reply->text.find(why), std::string::npos) << reply->text;
}

TEST(Unanswered, APullOfAnEarlierEpochIsRefused) {
  Server server;
  const Settings settings = elastic_settings(2);
  for (const int worker : {0, 1}) attach(server, worker, worker, 0, settings);
  EXPECT_EQ(server.ask(1, {.ask = Ask::Pull, .worker = 1}), nullptr);  // there are no weights
  attach(server, 2, 0, 1, settings);
  expect_refused(server.reply(1), Ask::Pull, ExitCode::PeerLost, "regrouped without it");
  EXPECT_EQ(server.service().clients(), (std::vector<int>{2}));
}

TEST(Unanswered, TermsOfAnEarlierEpochAreRefused) {
  Server server;
  const Settings settings = elastic_settings(2);
  const Floats weights = random_floats(settings.model.sum_bytes(0), 1);
  for (const int worker : {0, 1}) attach(server, worker, worker, 0, settings);
  server.write(0, weights);
  EXPECT_EQ(send_terms(server, 1, 1, weights), nullptr);
  attach(server, 2, 0, 1, settings);
  expect_refused(server.reply(1), Ask::Terms, ExitCode::PeerLost, "regrouped without it");
}

// An update that is made counts, so its worker hears of it.
TEST(Unanswered, ACommitOfAnEarlierEpochIsAnswered) {
  Server server;
  const Settings settings = elastic_settings(1);
  const Floats weights = random_floats(settings.model.sum_bytes(0), 1);
  std::vector<std::byte> room(settings.model.bytes(0));
  server.set_room([&](int, std::size_t) { return std::span(room); });
  server.apply_together();
  attach(server, 0, 0, 0, settings);
  server.write(0, weights);
  EXPECT_NE(send_terms(server, 0, 0, weights, 1), nullptr);
  EXPECT_EQ(server.ask(0, {.ask = Ask::Commit, .rate = 0.1}), nullptr);
  attach(server, 1, 0, 1, settings);
  ASSERT_NE(server.reply(0), nullptr);
  EXPECT_EQ(server.reply(0)->exit_code, 0);
  EXPECT_EQ(server.reply(0)->version, 1);
}

TEST(Unanswered, TermsThatTheirWorkerSendsAgainFromAnotherConnectionAreRefused) {
  Server server;
  const Settings settings = settings_of(0, 2);
  const Floats weights = random_floats(settings.model.sum_bytes(0), 1);
  for (const int worker : {0, 1}) attach(server, worker, worker, 0, settings);
  server.write(0, weights);
  EXPECT_EQ(send_terms(server, 1, 1, weights), nullptr);
  attach(server, 2, 1, 0, settings);
  EXPECT_EQ(server.reply(1), nullptr);  // they count until they come again
  EXPECT_EQ(send_terms(server, 2, 1, weights), nullptr);
  expect_refused(server.reply(1), Ask::Terms, ExitCode::Refused, "has taken its place");
  EXPECT_EQ(send_terms(server, 0, 0, weights)->exit_code, 0);
  EXPECT_EQ(server.reply(2)->exit_code, 0);
}

// The batch has one micro-batch, of a worker that an exception ended.
TEST(Unanswered, WorkersWithoutAPartOfTheBatchGetAnEmptySumWhenTheOthersHaveLeft) {
  Server server;
  const Settings settings = settings_of(0, 2);
  for (const int worker : {0, 1}) attach(server, worker, worker, 0, settings);
  server.write(0, random_floats(settings.model.bytes(0), 1));
  EXPECT_EQ(server.ask(1, {.ask = Ask::Terms, .worker = 1, .total = 1}), nullptr);
  server.ask(0, {.ask = Ask::Leave});
  const Reply* reply = server.reply(1);
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(reply->exit_code, 0) << reply->text;
  EXPECT_EQ(reply->not_finite, -1);
  for (const std::byte byte : server.memory(1)) EXPECT_EQ(byte, std::byte{});  // squares
}

}  // namespace
}  // namespace trireme::inline v0::ps::service_test
