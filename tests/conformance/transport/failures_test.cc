// Failures of every Transport: mismatches, aborts, peers that leave, deadlines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "suite.h"
#include "trireme/base/error.h"
#include "trireme/base/waiter.h"

namespace trireme::conformance {
namespace {

TYPED_TEST(Conformance, AWrongLengthIsAMismatchAndHurtsNobodyElse) {
  TypeParam::run(2, [](Rank& rank) {
    for (const std::size_t size : {std::size_t{8}, std::size_t{3000}, std::size_t{100000}}) {
      Bytes out = pattern(size, 1), wrong(size + 1), right(size);
      if (rank.rank == 0) {
        const Work bad = rank.send(1, 1, out), good = rank.send(1, 1, out);
        bad.wait(kSoon);
        good.wait(kSoon);
      } else {
        try {
          rank.recv(0, 1, wrong).wait(kSoon);
          FAIL() << "a message of " << size << " bytes went into " << size + 1;
        } catch (const MismatchError& error) {
          EXPECT_EQ(error.peer(), 0);
          EXPECT_THAT(error.what(), ::testing::HasSubstr(std::to_string(size + 1)));
          EXPECT_THAT(error.what(), ::testing::HasSubstr(std::to_string(size) + " "));
        }
        rank.recv(0, 1, right).wait(kSoon);
        EXPECT_TRUE(right == out);
      }
      rank.barrier();
    }
  });
}

TYPED_TEST(Conformance, AbortFailsAllThatIsPendingAndAllThatFollows) {
  TypeParam::run(2, [](Rank& rank) {
    Bytes large(1 << 20), in(8);
    if (rank.rank == 0) {
      const Work receive = rank.recv(1, 1, in), self = rank.recv(0, 1, in);
      const Work sent = rank.send(1, 2, large);
      rank.in_context([&] { rank.transport->abort(std::make_exception_ptr(StepRefused("stop"))); });
      EXPECT_THROW(receive.wait(kSoon), StepRefused);
      EXPECT_THROW(self.wait(kSoon), StepRefused);
      try {
        sent.wait(kSoon);  // the simulation may have buffered it
      } catch (const StepRefused&) {
      }
      EXPECT_THROW(rank.recv(1, 1, in).wait(kSoon), StepRefused);
      EXPECT_THROW(rank.send(1, 1, in).wait(kSoon), StepRefused);
    } else {
      EXPECT_THROW(rank.recv(0, 3, in).wait(kSoon), PeerLost);
    }
  });
}

// Ranks 2 and 3 share a host if there are two ranks a host, and are not its ranks 2 and 3.
TYPED_TEST(Conformance, ErrorsNameRanksByTheirNumbersInTheWholeGroup) {
  TypeParam::run(4, [](Rank& rank) {
    Bytes large(100'000), wrong(8), in(8);
    if (rank.rank == 3) rank.send(2, 1, large).wait(kSoon);
    if (rank.rank == 2) {
      try {
        rank.recv(3, 1, wrong).wait(kSoon);
        ADD_FAILURE() << "a long message went into a short buffer";
      } catch (const MismatchError& error) {
        EXPECT_EQ(error.rank(), 2);
        EXPECT_EQ(error.peer(), 3);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 3 sent"));
      }
    }
    rank.barrier();
    if (rank.rank == 3) return;
    for (const bool sends : {false, true}) {
      try {
        (sends ? rank.send(3, 2, in) : rank.recv(3, 2, in)).wait(kSoon);
        ADD_FAILURE() << "rank 3 has left";
      } catch (const PeerLost& error) {
        EXPECT_EQ(error.rank(), rank.rank);
        EXPECT_EQ(error.peer(), 3);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 3 "));
      }
    }
  });
}

TYPED_TEST(Conformance, ALeavingPeerIsNamed) {
  TypeParam::run(3, [](Rank& rank) {
    rank.barrier();
    if (rank.rank == 1) return;
    Bytes in(8), large(1 << 20);
    const Work receive = rank.recv(1, 1, in);
    try {
      receive.wait(kSoon);
      FAIL() << "received from nobody";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.peer(), 1);
      EXPECT_EQ(error.rank(), rank.rank);
      EXPECT_FALSE(error.advice().empty());
    }
    EXPECT_THROW(rank.recv(1, 1, in).wait(kSoon), PeerLost);
    EXPECT_THROW(rank.send(1, 1, large).wait(kSoon), PeerLost);
    // The two remaining ranks continue.
    const int other = 2 - rank.rank;
    Bytes out = pattern(100, 5), got(100);
    const Work sent = rank.send(other, 4, out);
    rank.recv(other, 4, got).wait(kSoon);
    sent.wait(kSoon);
    EXPECT_TRUE(got == out);
  });
}

TYPED_TEST(Conformance, WhatWasSentBeforeLeavingArrives) {
  TypeParam::run(2, [](Rank& rank) {
    Bytes bytes = pattern(1000, 1), in(1000);
    if (rank.rank == 1) return rank.send(0, 1, bytes).wait(kSoon);
    rank.waiter->sleep(20ms);
    rank.recv(1, 1, in).wait(kSoon);
    EXPECT_TRUE(in == bytes);
    EXPECT_THROW(rank.recv(1, 1, in).wait(kSoon), PeerLost);
  });
}

TYPED_TEST(Conformance, ALargeMessageSentBeforeLeavingArrives) {
  TypeParam::run(2, [](Rank& rank) {
    Bytes bytes = pattern(3'000'001, 1), in(3'000'001);
    if (rank.rank == 1) return rank.send(0, 1, bytes).wait(kSoon);
    const Work receive = rank.recv(1, 1, in);
    rank.waiter->sleep(5ms);
    receive.wait(kSoon);
    EXPECT_TRUE(in == bytes);
    EXPECT_THROW(rank.recv(1, 1, in).wait(kSoon), PeerLost);
  });
}

TYPED_TEST(Conformance, ADeadlineExpires) {
  TypeParam::run(2, [](Rank& rank) {
    Bytes in(8), out(8);
    const Work receive = rank.recv(1 - rank.rank, 1, in);
    const TimePoint start = rank.waiter->now();
    EXPECT_THROW(receive.wait(Deadline::in(30ms)), TimeoutError);
    EXPECT_GE(rank.waiter->now() - start, 30ms);
    EXPECT_FALSE(receive.done());
    rank.barrier();
    rank.send(1 - rank.rank, 1, out).wait(kSoon);
    receive.wait(kSoon);  // the deadline is that of the wait, not the message's
  });
}

}  // namespace
}  // namespace trireme::conformance
