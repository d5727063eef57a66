#include "trireme/rendezvous/server_view.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::inline v0::rendezvous {
namespace {

ServerAuthority three() {
  ServerAuthority authority(3);
  for (int server = 0; server < 3; ++server) authority.up(server, std::to_string(server));
  return authority;
}

TEST(ServerAuthority, BeginsWithAShardOnEachServer) {
  ServerAuthority authority(2);
  EXPECT_FALSE(authority.view().complete());
  EXPECT_EQ(authority.up(0, "a"), 1u);
  EXPECT_EQ(authority.view().primary(0), 0);
  EXPECT_EQ(authority.view().primary(1), -1);
  authority.up(1, "b");
  EXPECT_TRUE(authority.view().complete());
  EXPECT_FALSE(authority.can_lose(0));
  EXPECT_EQ(ServerView::from_text(authority.view().to_text()), authority.view());
}

TEST(ServerAuthority, TheNextCopyServesAShardWhoseServerIsDown) {
  ServerAuthority authority = three();
  for (int shard = 0; shard < 3; ++shard) authority.has_copy(shard, 1, shard, (shard + 1) % 3, 1);
  EXPECT_TRUE(authority.can_lose(1));
  const std::uint64_t before = authority.view().number;
  authority.down(1);
  EXPECT_GT(authority.view().number, before);
  EXPECT_EQ(authority.view().primary(1), 2);
  EXPECT_EQ(authority.view().shards[1].term, 2u);
  EXPECT_EQ(authority.view().shards[0].term, 1u);  // its primary is the same
  EXPECT_FALSE(authority.view().has_copy(0, 1));
  EXPECT_FALSE(authority.can_lose(0));
  EXPECT_FALSE(authority.can_lose(2));
  EXPECT_TRUE(authority.can_lose(1));  // it has nothing
}

TEST(ServerAuthority, AServerThatComesBackHasNothingUntilThePrimarySaysSo) {
  ServerAuthority authority = three();
  authority.has_copy(1, 1, 1, 2, 1);
  authority.down(1);
  EXPECT_EQ(authority.up(1, "new"), 2u);
  EXPECT_EQ(authority.view().primary(1), 2);
  EXPECT_FALSE(authority.view().lives(1, 1));
  EXPECT_TRUE(authority.view().lives(1, 2));
  const ServerView before = authority.view();
  authority.has_copy(1, 2, 2, 1, 1);  // of the process that is gone
  authority.has_copy(1, 1, 2, 1, 2);  // of an old term
  authority.has_copy(1, 2, 0, 1, 2);  // not by the primary
  authority.has_copy(7, 2, 0, 1, 2);
  EXPECT_EQ(authority.view(), before);
  authority.has_copy(1, 2, 2, 1, 2);
  EXPECT_TRUE(authority.view().has_copy(1, 1));
}

// The only copy is lost; an empty server must not serve the shard.
TEST(ServerAuthority, AShardWithoutCopiesStaysLost) {
  ServerAuthority authority = three();
  authority.down(0);
  authority.up(0, "new");
  EXPECT_EQ(authority.view().primary(0), -1);
  EXPECT_FALSE(authority.can_lose(1));
}

// Before the job has begun nothing is lost with it.
TEST(ServerAuthority, AShardThatHasHeldNothingBeginsOnTheNextProcess) {
  ServerAuthority authority(2);
  authority.up(0, "a");
  authority.up(1, "b");
  authority.reset(0);
  EXPECT_FALSE(authority.view().complete());
  EXPECT_EQ(authority.view().primary(0), -1);
  EXPECT_EQ(authority.up(0, "c"), 2u);
  EXPECT_TRUE(authority.view().complete());
  EXPECT_EQ(authority.view().primary(0), 0);
  EXPECT_EQ(authority.view().primary(1), 1);
}

TEST(ServerView, RefusesWhatIsNone) {
  EXPECT_THROW(ServerView::from_text("{"), RefusedError);
  EXPECT_THROW(
      ServerView::from_text(R"({"number":1,"servers":[],"shards":[{"term":1,"copies":[0]}]})"),
      RefusedError);
}

}  // namespace
}  // namespace trireme::inline v0::rendezvous
