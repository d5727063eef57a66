// Workers that train on their own and are lost where nothing else sees processes end, as in a TFJob.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/clock.h"
#include "trireme/base/event.h"
#include "trireme/rendezvous/coordinator/coordinator_test.h"

namespace trireme::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class LostWorker : public ::testing::Test {
 protected:
  // Says that worker 2 trains on its own, and that servers wait for `needed` workers. Then its
  // stream ends.
  void lose_worker_2(int needed) {
    wire::Session session;
    session.set_rank(2);
    session.set_token(join_by_hand(*stub, 2));
    wire::ServerNews alone;
    *alone.mutable_session() = session;
    alone.set_alone(static_cast<std::uint32_t>(needed));
    wire::ServerViewReply view;
    grpc::ClientContext telling, watching;
    ASSERT_TRUE(stub->TellOfServers(&telling, alone, &view).ok());
    wire::WatchRequest request;
    *request.mutable_session() = session;
    const auto stream = stub->Watch(&watching, request);
    wire::News first;
    ASSERT_TRUE(stream->Read(&first));
    watching.TryCancel();
    stream->Finish();
  }

  // Joins as worker 2, as soon as it may.
  bool join_again() {
    wire::JoinRequest join;
    join.set_version(std::string(kWireVersion));
    join.set_job("job");
    join.set_rank(2);
    join.set_host("another");
    const TimePoint end = steady_now() + seconds(20);
    Event pause;  // never set
    do {
      wire::JoinReply reply;
      grpc::ClientContext context;
      if (stub->Join(&context, join, &reply).ok()) return true;
      pause.wait(milliseconds(5));
    } while (steady_now() < end);
    return false;
  }

  Coordinator coordinator{
      {.roles = {.workers = 3, .servers = 1}, .secret = kSecret, .lost_with_stream = true}};
  CoordinatorClient zero{client_options(coordinator, 0)}, one{client_options(coordinator, 1)};
  const std::unique_ptr<wire::Coordinator::Stub> stub = stub_for(coordinator);
};

TEST_F(LostWorker, OfWorkersOnTheirOwnIsNobodyElsesLoss) {
  lose_worker_2(/*needed=*/1);
  EXPECT_TRUE(join_again()) << "while the first one counted as there, it was only refused";
  EXPECT_FALSE(coordinator.first_failure());
}

// A launcher may see the process's end before the coordinator has served its last call.
TEST_F(LostWorker, ThatSaysAfterwardsThatItLeavesKeepsNoPlace) {
  CoordinatorClient two(client_options(coordinator, 2));
  two.tell_alone();
  ASSERT_TRUE(coordinator.lose_worker(2));
  two.leave(1);
  EXPECT_TRUE(join_again());
  EXPECT_FALSE(coordinator.first_failure());
}

TEST_F(LostWorker, ForWhichServersWaitEndsTheJob) {
  Event failed;
  one.watch([&](const News& news) {
    if (news.kind == News::Kind::Failure) failed.set();
  });
  lose_worker_2(/*needed=*/3);
  EXPECT_TRUE(failed.wait(seconds(20)));
  one.stop_watching();
  ASSERT_TRUE(coordinator.first_failure());
  EXPECT_THAT(coordinator.first_failure()->sentence, HasSubstr("rank 2 on host by hand is gone"));
}

}  // namespace
}  // namespace trireme::rendezvous
