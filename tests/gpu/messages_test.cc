// Sends and receives of GPU memory: tags, orders, both directions at once, and mismatches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/gpu_ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

namespace trireme {
namespace {

using test::Bytes, test::fake_gpu, test::GpuRank, test::kTypes, test::leaf, test::OnGpu,
    test::run_gpus;
using ::testing::HasSubstr;

TEST(GpuMessages, EveryTypeArrivesAsItWasSent) {
  run_gpus(3, [](GpuRank& rank) {
    const int next = (rank.rank + 1) % 3, before = (rank.rank + 2) % 3;
    for (const DType dtype : kTypes) {
      for (const std::size_t count : {0ul, 1ul, 5000ul}) {
        const OnGpu out = rank.on_gpu(leaf(dtype, count, rank.rank));
        const OnGpu in = rank.on_gpu(Bytes(out.bytes().size()));
        const Work works[] = {rank.world.send(out.buffer(dtype), next),
                              rank.world.recv(in.buffer(dtype), before)};
        Work::all(works).wait();
        EXPECT_EQ(in.bytes(), leaf(dtype, count, before));
      }
    }
  });
}

// Both send first: on one stream each send would block the receive behind it.
TEST(GpuMessages, BothWaysAtOnce) {
  run_gpus(2, [](GpuRank& rank) {
    const int peer = 1 - rank.rank;
    for (int turn = 0; turn < 3; ++turn) {
      const OnGpu out = rank.on_gpu(leaf(DType::F32, 9999, rank.rank));
      const OnGpu in = rank.on_gpu(Bytes(out.bytes().size()));
      const Work sent = rank.world.send(out.buffer(DType::F32), peer);
      rank.world.recv(in.buffer(DType::F32), peer).wait();
      sent.wait();
      EXPECT_EQ(in.bytes(), leaf(DType::F32, 9999, peer));
    }
  });
}

TEST(GpuMessages, TagsMayComeInAnotherOrder) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    run_gpus(2,
             [](GpuRank& rank) {
               constexpr std::uint32_t kTags = 6;
               std::vector<OnGpu> values;
               std::vector<Work> works;
               for (std::uint32_t i = 0; i < kTags; ++i) {
                 const std::uint32_t tag = rank.rank == 0 ? i : (i * 5 + 2) % kTags;
                 const Bytes value = leaf(DType::I32, 10 + tag, tag);
                 values.push_back(rank.on_gpu(rank.rank == 0 ? value : Bytes(value.size())));
                 const Buffer buffer = values.back().buffer(DType::I32);
                 works.push_back(rank.rank == 0 ? rank.world.send(buffer, 1, tag)
                                                : rank.world.recv(buffer, 0, tag));
               }
               Work::all(works).wait();
               for (std::uint32_t i = 0; i < kTags && rank.rank == 1; ++i) {
                 const std::uint32_t tag = (i * 5 + 2) % kTags;
                 EXPECT_EQ(values[i].bytes(), leaf(DType::I32, 10 + tag, tag));
               }
             },
             {.seed = seed});
  }
}

TEST(GpuMessages, BesideCollectivesAndInGroups) {
  run_gpus(4, [](GpuRank& rank) {
    const auto half = rank.world.split(rank.rank / 2, rank.rank);
    const int peer = 1 - half->rank();
    const OnGpu sum = rank.on_gpu(leaf(DType::I64, 5000, 1));
    const OnGpu value = rank.on_gpu(leaf(DType::F64, 100, rank.rank));
    const OnGpu in = rank.on_gpu(Bytes(800));
    const Work all = rank.world.all_reduce(sum.buffer(DType::I64), Max);
    const Work sent = half->send(value.buffer(DType::F64), peer, 7);
    half->recv(in.buffer(DType::F64), peer, 7).wait();
    all.wait();
    sent.wait();
    EXPECT_EQ(in.bytes(), leaf(DType::F64, 100, rank.rank ^ 1));
    EXPECT_EQ(sum.bytes(), leaf(DType::I64, 5000, 1));
  });
}

template <class Expected>
std::string error_of(const Work& work) {
  try {
    work.wait();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

TEST(GpuMessages, CountsThatDifferAreRefusedBeforeTheGpuSeesThem) {
  run_gpus(2, [](GpuRank& rank) {
    const OnGpu value = rank.on_gpu(Bytes(rank.rank == 0 ? 400 : 800));
    const Buffer buffer = value.buffer(DType::F32);
    if (rank.rank == 1) {
      EXPECT_THAT(error_of<MismatchError>(rank.world.recv(buffer, 0)),
                  HasSubstr("rank 0 called send(tag 0, F32, 100"));
    } else {
      EXPECT_NE(error_of<Error>(rank.world.send(buffer, 1)), "no error");
    }
    EXPECT_EQ(fake_gpu().calls("ncclSend"), 0);
  });
}

TEST(GpuMessages, ASendFromTheCpuIsNotReceivedOnAGpu) {
  run_gpus(2, [](GpuRank& rank) {
    if (rank.rank == 0) {
      std::vector<float> values(100);
      rank.world.barrier().wait();
      (void)error_of<Error>(rank.world.send(Buffer::of(std::span(values)), 1));
      (void)error_of<Error>(rank.world.barrier());  // until the other has seen it
    } else {
      rank.world.barrier().wait();
      const OnGpu value = rank.on_gpu(Bytes(400));
      EXPECT_THAT(error_of<MismatchError>(rank.world.recv(value.buffer(DType::F32), 0)),
                  HasSubstr("both CPU or both device memory"));
    }
  });
}

TEST(GpuMessages, ASendThatNobodyReceivesEndsAtItsDeadline) {
  run_gpus(2,
           [](GpuRank& rank) {
             if (rank.rank == 1) return rank.context.waiter->sleep(std::chrono::seconds(4));
             const OnGpu value = rank.on_gpu(Bytes(400));
             EXPECT_THAT(error_of<TimeoutError>(rank.world.send(value.buffer(DType::F32), 1)),
                         HasSubstr("for rank 1"));
           },
           {.timeout = std::chrono::seconds(2)});
}

// The receiver's answer to a later send may come before the one to the first, and then none.
TEST(GpuMessages, EverySendEndsWhenTheGroupBreaks) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    run_gpus(2,
             [&](GpuRank& rank) {
               std::vector<OnGpu> values;
               std::vector<Work> works;
               for (std::uint32_t tag = 0; tag < 6; ++tag) {
                 values.push_back(rank.on_gpu(Bytes(40)));
                 const Buffer buffer = values.back().buffer(DType::I32);
                 works.push_back(rank.rank == 0 ? rank.world.send(buffer, 1, tag)
                                                : rank.world.recv(buffer, 0, tag));
               }
               rank.context.waiter->sleep(std::chrono::microseconds(seed));
               rank.world.abort(std::make_exception_ptr(StopRequested("enough")));
               for (const Work& work : works)
                 EXPECT_THAT(error_of<Error>(work), ::testing::Not(HasSubstr("deadlock"))) << seed;
             },
             {.seed = seed});
  }
}

// Its header has arrived before.
TEST(GpuMessages, AReceiveFromAPeerThatHasGoneFails) {
  run_gpus(2, [](GpuRank& rank) {
    const OnGpu value = rank.on_gpu(Bytes(400));
    if (rank.rank == 1) {
      const Work sent = rank.world.send(value.buffer(DType::F32), 0);
      rank.context.waiter->sleep(std::chrono::seconds(1));
      rank.world.abort(std::make_exception_ptr(StopRequested("enough")));
      return (void)error_of<Error>(sent);
    }
    rank.context.waiter->sleep(std::chrono::seconds(2));
    EXPECT_THAT(error_of<PeerLost>(rank.world.recv(value.buffer(DType::F32), 1)),
                ::testing::AllOf(HasSubstr("rank 1"), ::testing::Not(HasSubstr("another error"))));
  });
}

TEST(GpuMessages, EverySendEndsIfTheirCommunicatorCannotBeMade) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    run_gpus(2,
             [&](GpuRank& rank) {
               if (rank.rank == 0) fake_gpu().refuse_communicator(0);
               rank.world.barrier().wait();
               std::vector<OnGpu> values;
               std::vector<Work> works;
               for (std::uint32_t tag = 0; tag < 6; ++tag) {
                 values.push_back(rank.on_gpu(Bytes(40)));
                 const Buffer buffer = values.back().buffer(DType::I32);
                 works.push_back(rank.rank == 0 ? rank.world.send(buffer, 1, tag)
                                                : rank.world.recv(buffer, 0, tag));
               }
               for (const Work& work : works)
                 EXPECT_THAT(error_of<Error>(work), ::testing::Not(HasSubstr("no error"))) << seed;
             },
             {.seed = seed});
  }
}

}  // namespace
}  // namespace trireme
