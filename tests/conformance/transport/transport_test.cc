// The promises of every Transport (trireme/net/transport.h) without failures.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/net/transport.h"

#include "suite.h"

namespace trireme::conformance {
namespace {

TYPED_TEST(Conformance, EveryPairExchangesOnEverySize) {
  for (const int size : {1, 2, 3, 5, 8}) {
    TypeParam::run(size, [&](Rank& rank) {
      EXPECT_EQ(rank.transport->rank(), rank.rank);
      EXPECT_EQ(rank.transport->size(), size);
      EXPECT_EQ(rank.transport->name(), TypeParam::kTransport);
      std::vector<Bytes> out, in;
      std::vector<Work> works;
      for (int peer = 0; peer < size; ++peer) {
        out.push_back(pattern(100, static_cast<std::uint64_t>(rank.rank * 10 + peer)));
        in.emplace_back(100);
      }
      for (int peer = 0; peer < size; ++peer) {
        const auto at = static_cast<std::size_t>(peer);
        works.push_back(rank.send(peer, 1, out[at]));
        works.push_back(rank.recv(peer, 1, in[at]));
      }
      Work::all(works).wait(kSoon);
      for (int peer = 0; peer < size; ++peer) {
        EXPECT_EQ(in[static_cast<std::size_t>(peer)],
                  pattern(100, static_cast<std::uint64_t>(peer * 10 + rank.rank)));
      }
    });
  }
}

TYPED_TEST(Conformance, SizesFromZeroTo8MiB) {
  const std::size_t sizes[] = {0,     1,     7,      8,      47,     48,      49,     63,
                               64,    65,    4095,   4096,   4097,   16383,   16384,  16385,
                               65535, 65537, 262143, 262145, 999983, 1048577, 8388608};
  TypeParam::run(2, [&](Rank& rank) {
    const int peer = 1 - rank.rank;
    for (const std::size_t size : sizes) {
      Bytes out = pattern(size, size + static_cast<std::size_t>(rank.rank)), in(size);
      const Work sent = rank.send(peer, 3, out);
      rank.recv(peer, 3, in).wait(kSoon);
      sent.wait(kSoon);
      ASSERT_TRUE(in == pattern(size, size + static_cast<std::size_t>(peer))) << size << " bytes";
    }
  });
}

TYPED_TEST(Conformance, OneTagKeepsItsOrderAcrossSizes) {
  const std::size_t sizes[] = {8, 100000, 1, 16384, 16385, 0, 300000, 48, 49, 5000};
  TypeParam::run(2, [&](Rank& rank) {
    std::vector<Bytes> buffers;
    std::vector<Work> works;
    for (int round = 0; round < 3; ++round) {
      for (const std::size_t size : sizes) {
        buffers.push_back(rank.rank == 0 ? pattern(size, buffers.size()) : Bytes(size));
      }
    }
    for (auto& buffer : buffers) {
      works.push_back(rank.rank == 0 ? rank.send(1, 5, buffer) : rank.recv(0, 5, buffer));
    }
    Work::all(works).wait(kSoon);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_TRUE(buffers[i] == pattern(buffers[i].size(), i)) << "message " << i;
    }
  });
}

// Frames that are sent together fill the transport's buffers up to, and beyond, their ends.
TYPED_TEST(Conformance, OneTagKeepsItsOrderInOneTurn) {
  const std::size_t sizes[] = {16384, 16384, 0, 16384, 16384, 100, 16384, 16384, 16384, 16384,
                               1,     16384, 7, 50000, 16384, 16,  3,     99999, 16383, 0};
  TypeParam::run(2, [&](Rank& rank) {
    std::vector<Bytes> out, in;
    for (int round = 0; round < 10; ++round) {
      for (const std::size_t size : sizes) {
        out.push_back(pattern(size, out.size()));
        in.emplace_back(size);
      }
    }
    std::vector<Work> works;
    rank.in_context([&] {
      for (std::size_t i = 0; i < out.size(); ++i) {
        works.push_back(rank.transport->send(1 - rank.rank, {5}, out[i]));
        works.push_back(rank.transport->recv(1 - rank.rank, {5}, in[i]));
      }
    });
    Work::all(works).wait(kSoon);
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_TRUE(in[i] == out[i]) << "message " << i;
  });
}

TYPED_TEST(Conformance, TagsMayOvertakeEachOther) {
  TypeParam::run(2, [](Rank& rank) {
    constexpr std::size_t kTags = 20;
    std::vector<Bytes> buffers;
    std::vector<Work> works(kTags);
    for (std::size_t tag = 0; tag < kTags; ++tag) {
      const std::size_t size = tag % 3 == 0 ? 100000 + tag : 10 + tag;
      buffers.push_back(rank.rank == 0 ? pattern(size, tag) : Bytes(size));
    }
    for (std::size_t i = 0; i < kTags; ++i) {
      const std::size_t tag = rank.rank == 0 ? i : kTags - 1 - i;
      works[tag] =
          rank.rank == 0 ? rank.send(1, tag, buffers[tag]) : rank.recv(0, tag, buffers[tag]);
      if (rank.rank == 1) works[tag].wait(kSoon);  // the last tag sent is received first
    }
    Work::all(works).wait(kSoon);
    for (std::size_t tag = 0; tag < kTags; ++tag) {
      EXPECT_TRUE(buffers[tag] == pattern(buffers[tag].size(), tag)) << "tag " << tag;
    }
  });
}

// 85 MB without a posted receive, and behind them a message that is awaited.
TYPED_TEST(Conformance, AnAwaitedMessageComesThroughBehindAnyOthers) {
  TypeParam::run(2, [](Rank& rank) {
    constexpr std::size_t kMessages = 5200;
    Bytes many = pattern(16384, 1), awaited = pattern(100, 2);
    if (rank.rank == 0) {
      std::vector<Work> works;
      for (std::size_t i = 0; i < kMessages; ++i) works.push_back(rank.send(1, 1, many));
      works.push_back(rank.send(1, 2, awaited));
      return Work::all(works).wait(kSoon);
    }
    Bytes got(awaited.size());
    rank.recv(0, 2, got).wait(kSoon);
    EXPECT_TRUE(got == awaited);
    for (std::size_t i = 0; i < kMessages; ++i) {
      got.assign(many.size(), {});
      rank.recv(0, 1, got).wait(kSoon);
      ASSERT_TRUE(got == many) << "message " << i;
    }
  });
}

TYPED_TEST(Conformance, ManySmallMessages) {
  constexpr int kMessages = 5000;
  TypeParam::run(3, [](Rank& rank) {
    std::vector<std::vector<int>> in(3, std::vector<int>(kMessages)), out = in;
    std::vector<Work> works;
    for (int i = 0; i < kMessages; ++i) {
      for (int peer = 0; peer < 3; ++peer) {
        const auto at = static_cast<std::size_t>(peer);
        auto& sent = out[at][static_cast<std::size_t>(i)];
        sent = i * 10 + rank.rank;
        works.push_back(rank.send(peer, 9, raw(sent)));
      }
    }
    for (int i = 0; i < kMessages; ++i) {
      for (int peer = 0; peer < 3; ++peer) {
        auto& got = in[static_cast<std::size_t>(peer)][static_cast<std::size_t>(i)];
        works.push_back(rank.recv(peer, 9, raw(got)));
      }
    }
    Work::all(works).wait(kSoon);
    for (int i = 0; i < kMessages; ++i) {
      for (int peer = 0; peer < 3; ++peer) {
        ASSERT_EQ(in[static_cast<std::size_t>(peer)][static_cast<std::size_t>(i)], i * 10 + peer);
      }
    }
  });
}

TYPED_TEST(Conformance, AnEagerSendEndsWithoutItsReceive) {
  TypeParam::run(2, [](Rank& rank) {
    Bytes out = pattern(net::kEagerBytes, 1), in(net::kEagerBytes);
    rank.send(1 - rank.rank, 1, out).wait(kSoon);
    rank.recv(1 - rank.rank, 1, in).wait(kSoon);
    EXPECT_TRUE(in == out);
  });
}

TYPED_TEST(Conformance, BothSendALargeMessageFirst) {
  TypeParam::run(3, [](Rank& rank) {
    constexpr std::size_t kSize = 3000001;
    Bytes out = pattern(kSize, static_cast<std::uint64_t>(rank.rank));
    std::vector<Bytes> in(3, Bytes(kSize));
    std::vector<Work> works;
    for (int peer = 0; peer < 3; ++peer) works.push_back(rank.send(peer, 1, out));
    for (int peer = 0; peer < 3; ++peer) {
      works.push_back(rank.recv(peer, 1, in[static_cast<std::size_t>(peer)]));
    }
    Work::all(works).wait(kSoon);
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_TRUE(in[static_cast<std::size_t>(peer)] ==
                  pattern(kSize, static_cast<std::uint64_t>(peer)));
    }
  });
}

TYPED_TEST(Conformance, SmallMessagesPassALargeOne) {
  TypeParam::run(2, [](Rank& rank) {
    Bytes large = pattern(1 << 20, 1), got(1 << 20);
    if (rank.rank == 0) {
      const Work stuck = rank.send(1, 1, large);  // its receive is posted last
      int value = 7;
      rank.send(1, 2, raw(value)).wait(kSoon);
      stuck.wait(kSoon);
    } else {
      int value = 0;
      rank.recv(0, 2, raw(value)).wait(kSoon);
      EXPECT_EQ(value, 7);
      rank.recv(0, 1, got).wait(kSoon);
      EXPECT_TRUE(got == large);
    }
  });
}

TYPED_TEST(Conformance, SendsToItself) {
  TypeParam::run(2, [](Rank& rank) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{200000}}) {
      Bytes out = pattern(size, size), first(size), second(size);
      const Work posted = rank.recv(rank.rank, 1, first);
      const Work sent = rank.send(rank.rank, 1, out), again = rank.send(rank.rank, 1, out);
      posted.wait(kSoon);
      sent.wait(kSoon);
      rank.recv(rank.rank, 1, second).wait(kSoon);
      again.wait(kSoon);
      EXPECT_TRUE(first == out);
      EXPECT_TRUE(second == out);
    }
  });
}

TYPED_TEST(Conformance, ContinuationsMayTalk) {
  TypeParam::run(2, [](Rank& rank) {
    const int peer = 1 - rank.rank;
    long value = 0, got = -1;
    std::atomic<int> left{200};
    std::function<void()> bounce = [&] {
      value = got + 1;
      if (--left < 0) return rank.waiter->wake();
      rank.transport->send(peer, {1}, raw(value)).on_settled([](const auto&) {});
      rank.transport->recv(peer, {1}, raw(got)).on_settled([&](const std::exception_ptr& error) {
        if (!error) bounce();
      });
    };
    rank.in_context(bounce);
    EXPECT_TRUE(rank.waiter->wait_until([&] { return left < 0; }, rank.waiter->now() + 60s));
    EXPECT_EQ(got, 199);
    rank.barrier();
  });
}

TYPED_TEST(Conformance, RandomTrafficArrivesWhole) {
  const int rounds = std::string_view(TypeParam::kTransport) == "sim" ? 100 : 8;
  for (int seed = 1; seed <= rounds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TypeParam::run(
        4,
        [&](Rank& rank) {
          // All ranks draw the same plan: sender, receiver, size and tag of each message.
          std::mt19937_64 random(static_cast<std::uint64_t>(seed));
          struct Planned {
            int from, to;
            std::uint64_t tag;
            std::size_t size;
          };
          std::vector<Planned> plan;
          for (int i = 0; i < 120; ++i) {
            const std::size_t size = random() % 4 == 0 ? random() % 100000 : random() % 300;
            plan.push_back({static_cast<int>(random() % 4), static_cast<int>(random() % 4),
                            random() % 3, size});
          }
          std::vector<Bytes> buffers(2 * plan.size());
          std::vector<Work> works;
          for (std::size_t i = 0; i < plan.size(); ++i) {
            const Planned& one = plan[i];
            if (one.from == rank.rank) {
              buffers[2 * i] = pattern(one.size, i);
              works.push_back(rank.send(one.to, one.tag, buffers[2 * i]));
            }
            if (one.to == rank.rank) {
              buffers[2 * i + 1].resize(one.size);
              works.push_back(rank.recv(one.from, one.tag, buffers[2 * i + 1]));
            }
          }
          Work::all(works).wait(kSoon);
          for (std::size_t i = 0; i < plan.size(); ++i) {
            if (plan[i].to != rank.rank) continue;
            EXPECT_TRUE(buffers[2 * i + 1] == pattern(plan[i].size, i)) << "message " << i;
          }
          rank.barrier();
        },
        static_cast<std::uint64_t>(seed));
  }
}

}  // namespace
}  // namespace trireme::conformance
