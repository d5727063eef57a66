// Gradients of weights that others have changed since: predicted weights, and delay compensation.
#include <gtest/gtest.h>

#include <cstring>

#include "trireme/ps/server/service_test.h"

namespace trireme::inline v0::ps::service_test {
namespace {

// Gradients of 1, after the scale: the updates are 0.1, 0.19 and 0.271.
TEST(Service, AnswersLatePushesWithPredictedWeights) {
  Settings settings = settings_of(-1, 2);
  settings.server.prediction = true;
  Server server, copy;
  server.attach(0, settings);
  server.attach(1, settings);
  const std::size_t count = settings.model.bytes(0) / sizeof(float);
  server.write(0, Floats(count, 0));
  const auto push = [&](Server& one, int worker, std::uint64_t sequence, std::int64_t version) {
    EXPECT_NE(one.push(worker, sequence, Floats(count, 2), version), nullptr);
    return one.floats(worker).front();
  };
  EXPECT_FLOAT_EQ(push(server, 0, 1, 0), -0.1F) << "not late: the weights themselves";
  EXPECT_FLOAT_EQ(push(server, 1, 1, 0), -0.29F - (0.9F + 0.81F) * 0.19F);
  const Saved saved = server.service().snapshot();
  copy.service().restore(saved.text, saved.memory);
  for (Server* one : {&server, &copy}) {
    EXPECT_NE(one->ask(1, {.ask = Ask::Pull, .worker = 1}), nullptr);
    EXPECT_FLOAT_EQ(one->floats(1).front(), -0.29F) << "whoever pulls gets the present ones";
    EXPECT_FLOAT_EQ(push(*one, 0, 2, 1), -0.561F - (0.9F + 0.81F) * 0.271F);
  }
}

TEST(Service, PredictedWeightsAreWrittenWhereTheClientWantsThemToo) {
  Settings settings = settings_of(-1, 2);
  settings.server.prediction = true;
  Server server, other;
  std::vector<std::byte> room(settings.model.bytes(0));
  server.set_room([&](int, std::size_t) { return std::span(room); });
  for (Server* one : {&server, &other}) {
    for (const int client : {0, 1}) one->attach(client, settings);
    one->write(0, random_floats(room.size(), 1));
  }
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
    for (const int worker : {0, 1}) {
      const Floats gradient = random_floats(room.size(), static_cast<unsigned>(sequence) + 5);
      EXPECT_TRUE(server.push(worker, sequence, gradient, 0)->written);
      EXPECT_FALSE(other.push(worker, sequence, gradient, 0)->written);
      for (const ServedModel::Slice& slice : settings.model.slices(0))
        EXPECT_EQ(std::memcmp(room.data() + slice.offset,
                              other.memory(worker).data() + slice.offset, slice.bytes()),
                  0);
    }
  }
}

// SGD at a rate of 0.1 by gradients of 1: g + lambda g g (w - what the worker had).
TEST(Service, CompensatesALateGradientByTheWayOfTheWeights) {
  Settings settings = settings_of(-1, 2);
  settings.optimizer = Sgd{.learning_rate = 0.1};
  settings.server.prediction = false;
  settings.server.compensation = 0.5;
  Server server, copy;
  const std::size_t count = settings.model.bytes(0) / sizeof(float);
  for (const int worker : {0, 1}) server.attach(worker, settings);
  server.write(0, Floats(count, 0));
  for (const int worker : {0, 1}) server.ask(worker, {.ask = Ask::Pull, .worker = worker});
  const auto push = [&](Server& one, int worker, std::uint64_t sequence) {
    EXPECT_NE(one.push(worker, sequence, Floats(count, 2)), nullptr);
    return one.floats(worker).front();
  };
  EXPECT_FLOAT_EQ(push(server, 0, 1), -0.1F) << "not late";
  EXPECT_FLOAT_EQ(push(server, 1, 1), -0.1F - 0.1F * (1 - 0.5F * 0.1F));
  const Saved saved = server.service().snapshot();
  copy.service().restore(saved.text, saved.memory);
  for (Server* one : {&server, &copy})
    EXPECT_FLOAT_EQ(push(*one, 0, 2), -0.195F - 0.1F * (1 - 0.5F * 0.095F));
}

}  // namespace
}  // namespace trireme::inline v0::ps::service_test
