// Heartbeats: the coordinator hears them, and answers with the states of all if they ask.
#include <gtest/gtest.h>

#include "trireme/rendezvous/coordinator/coordinator_test.h"

namespace trireme::rendezvous {
namespace {

using std::chrono::seconds;

TEST(Coordinator, HeartbeatsCarryWhatEveryRankDoes) {
  Coordinator coordinator({.roles = {.workers = 2}, .secret = kSecret});
  CoordinatorClient zero(client_options(coordinator, 0));
  CoordinatorClient one(client_options(coordinator, 1));
  one.heartbeat({.waiting = true,
                 .operation = "all_reduce bucket 2",
                 .last_call = "barrier",
                 .since = seconds(3),
                 .step = 12},
                seconds(5));
  const Table table = zero.heartbeat({}, seconds(5));
  ASSERT_EQ(table.peers.size(), 2u);
  EXPECT_EQ(table.peers[1].phase, Phase::Joined);
  EXPECT_TRUE(table.peers[1].activity.waiting);
  EXPECT_EQ(table.peers[1].activity.operation, "all_reduce bucket 2");
  EXPECT_EQ(table.peers[1].activity.step, 12);
  EXPECT_GE(table.peers[1].activity.since, seconds(3));
  EXPECT_FALSE(table.peers[0].activity.waiting);
}

// Each rank sends heartbeats all the time, and seldom needs to know what the others do.
TEST(Coordinator, HeartbeatsThatOnlyTellAreNotAnsweredWithTheStatesOfAll) {
  Coordinator coordinator({.roles = {.workers = 3}, .secret = kSecret});
  CoordinatorClient zero(client_options(coordinator, 0)), one(client_options(coordinator, 1));
  one.beat({.step = 12}, seconds(5));
  const auto stub = stub_for(coordinator);
  wire::HeartbeatRequest request;
  request.mutable_session()->set_rank(2);
  request.mutable_session()->set_token(join_by_hand(*stub, 2));
  request.mutable_activity()->set_step(13);
  request.set_only_tells(true);
  wire::HeartbeatReply reply;
  grpc::ClientContext context;
  ASSERT_TRUE(stub->Heartbeat(&context, request, &reply).ok());
  EXPECT_EQ(reply.peers_size(), 0);
  const Table table = zero.heartbeat({}, seconds(5));
  ASSERT_EQ(table.peers.size(), 3u);
  EXPECT_EQ(table.peers[1].activity.step, 12);
  EXPECT_EQ(table.peers[2].activity.step, 13);
}

}  // namespace
}  // namespace trireme::rendezvous
