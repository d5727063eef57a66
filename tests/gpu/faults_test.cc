// Failures: calls that differ, peers that leave, GPUs and communicators that hang or fail. No
// buffer is freed while a GPU may touch it, and no rank waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/gpu_ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

namespace trireme {
namespace {

using std::chrono::seconds;
using test::Bytes, test::fake_gpu, test::GpuRank, test::leaf, test::OnGpu, test::run_gpus;
using ::testing::HasSubstr, ::testing::Not;

template <class Expected>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

OnGpu some(GpuRank& rank, std::size_t count = 9999) {
  return rank.on_gpu(leaf(DType::F32, count, 1));
}

TEST(GpuFaults, CallsThatDifferAreRefusedBeforeTheGpuSeesThem) {
  run_gpus(2, [](GpuRank& rank) {
    const OnGpu value = some(rank, rank.rank == 0 ? 100 : 200);
    const std::string text = error_of<MismatchError>(
        [&] { rank.world.all_reduce(value.buffer(DType::F32), Sum).wait(); });
    EXPECT_THAT(text, HasSubstr("rank 0 called all_reduce(Sum, F32, 100"));
    EXPECT_THAT(text, HasSubstr("rank 1 called all_reduce(Sum, F32, 200"));
    EXPECT_EQ(fake_gpu().calls("ncclSend") + fake_gpu().calls("ncclAllReduce"), 0);
  });
}

TEST(GpuFaults, GpuAndCpuMemoryInOneCallAreRefused) {
  run_gpus(2, [](GpuRank& rank) {
    const OnGpu gpu = some(rank, 100);
    Bytes cpu(400);
    const Buffer buffer =
        rank.rank == 0 ? gpu.buffer(DType::F32) : test::buffer_over(cpu, DType::F32);
    EXPECT_THAT(error_of<MismatchError>([&] { rank.world.all_reduce(buffer, Sum).wait(); }),
                HasSubstr("algorithm nccl"));
  });
}

TEST(GpuFaults, ANativeCallAgainstAReproducibleOneIsRefused) {
  run_gpus(2, [](GpuRank& rank) {
    const OnGpu value = some(rank);
    const std::string_view algorithm = rank.rank == 0 ? "nccl-native" : "";
    EXPECT_THAT(
        error_of<MismatchError>([&] {
          rank.world.all_reduce(value.buffer(DType::F32), Sum, {.algorithm = algorithm}).wait();
        }),
        HasSubstr("nccl-native"));
  });
}

TEST(GpuFaults, AGpuThatStandsStillEndsAtTheDeadline) {
  run_gpus(2,
           [](GpuRank& rank) {
             const OnGpu value = some(rank);
             rank.world.all_reduce(value.buffer(DType::F32), Sum).wait();
             rank.world.barrier().wait();
             fake_gpu().freeze();
             const TimePoint start = rank.context.waiter->now();
             const std::string text = error_of<Error>([&] {
               rank.world.all_reduce(value.buffer(DType::F32), Sum, {.label = "bucket 2"}).wait();
             });
             EXPECT_THAT(text, ::testing::AnyOf(HasSubstr("for GPU"), HasSubstr("lost"),
                                                HasSubstr("left")));
             EXPECT_THAT(text, HasSubstr("all_reduce bucket 2"));
             EXPECT_LT(rank.context.waiter->now() - start, seconds(8));
             EXPECT_GE(rank.context.waiter->now() - start, seconds(4));
             EXPECT_NE(error_of<Error>([&] { rank.world.barrier().wait(); }), "no error");
           },
           {.timeout = seconds(5)});
}

// No thread waits on the host: the program waits for its own stream, which waits for the GPU.
TEST(GpuFaults, TheWatchEndsACallThatNobodyWaitsFor) {
  run_gpus(2,
           [](GpuRank& rank) {
             const OnGpu value = some(rank);
             rank.world.barrier().wait();
             fake_gpu().freeze();
             void* const stream = rank.gpu->make_stream();
             const Work work =
                 rank.world.all_reduce(value.buffer(DType::F32), Sum, {.label = "late"});
             work.wait_on({stream});
             const auto passed = rank.gpu->record(stream);
             const TimePoint end = rank.context.waiter->now() + seconds(9);
             while (!rank.gpu->reached(passed) && rank.context.waiter->now() < end)
               rank.context.waiter->sleep(std::chrono::milliseconds(10));
             EXPECT_TRUE(rank.gpu->reached(passed));  // the abort has released it
             EXPECT_THAT(error_of<Error>([&] { work.wait(); }), HasSubstr("all_reduce late"));
             rank.gpu->destroy_stream(stream);
           },
           {.timeout = seconds(5)});
}

TEST(GpuFaults, AnErrorOfNcclNamesCallAndKind) {
  run_gpus(2, [](GpuRank& rank) {
    const OnGpu value = some(rank);
    rank.world.all_reduce(value.buffer(DType::F32), Sum).wait();
    rank.world.barrier().wait();
    fake_gpu().freeze();
    const Work work = rank.world.all_reduce(value.buffer(DType::F32), Sum, {.label = "bucket 1"});
    work.wait_on({nullptr});
    if (rank.rank == 0) fake_gpu().set_async_error(0, 6);
    const TimePoint start = rank.context.waiter->now();
    const std::string text = error_of<PeerLost>([&] { work.wait(); });
    EXPECT_LT(rank.context.waiter->now() - start, seconds(3));
    EXPECT_THAT(text, HasSubstr("all_reduce bucket 1"));
    if (rank.rank == 0) {
      EXPECT_THAT(text, HasSubstr("NCCL lost a peer"));
    }
  });
}

TEST(GpuFaults, APeerThatGoesWhileTheGpuWorksIsNamed) {
  run_gpus(3, [](GpuRank& rank) {
    const OnGpu value = some(rank);
    rank.world.all_reduce(value.buffer(DType::F32), Sum).wait();
    rank.world.barrier().wait();
    fake_gpu().freeze();
    const Work work = rank.world.all_reduce(value.buffer(DType::F32), Sum, {.label = "bucket 1"});
    if (rank.rank == 2) {
      work.wait_on({nullptr});
      rank.world.abort(std::make_exception_ptr(StopRequested("enough")));
      EXPECT_THAT(error_of<StopRequested>([&] { work.wait(); }), HasSubstr("enough"));
      rank.context.world.reset();
      rank.context.transport.reset();  // as if its process had ended
      return;
    }
    const TimePoint start = rank.context.waiter->now();
    const std::string text = error_of<PeerLost>([&] { work.wait(); });
    EXPECT_THAT(text, HasSubstr("all_reduce bucket 1"));
    EXPECT_THAT(text, Not(HasSubstr("another error")));
    EXPECT_LT(rank.context.waiter->now() - start, seconds(3));
  });
}

TEST(GpuFaults, ACommunicatorThatCannotBeMadeIsAnErrorOnAllRanks) {
  run_gpus(3, [](GpuRank& rank) {
    if (rank.rank == 0) fake_gpu().refuse_communicator(1);
    rank.world.barrier().wait();
    const OnGpu value = some(rank);
    const std::string text =
        error_of<Error>([&] { rank.world.all_reduce(value.buffer(DType::F32), Sum).wait(); });
    if (rank.rank == 1) {
      EXPECT_THAT(text, HasSubstr("ncclCommInitRankConfig"));
    }
    EXPECT_NE(text, "no error");
  });
}

TEST(GpuFaults, ABrokenGpuIsAnErrorOnAllRanks) {
  run_gpus(2,
           [](GpuRank& rank) {
             const OnGpu value = some(rank);
             rank.world.all_reduce(value.buffer(DType::F32), Sum).wait();
             rank.world.barrier().wait();
             fake_gpu().freeze();
             const Work work = rank.world.all_reduce(value.buffer(DType::F32), Sum);
             work.wait_on({nullptr});
             if (rank.rank == 1) fake_gpu().break_gpu(1);
             const std::string text = error_of<Error>([&] { work.wait(); });
             if (rank.rank == 1) {
               EXPECT_THAT(text, HasSubstr("illegal memory access"));
             }
             EXPECT_NE(text, "no error");
           },
           {.expect_leftovers = true});
}

// Memory that a GPU may still write to is never freed, not even at the end of the program.
TEST(GpuFaults, AGpuThatNeverComesBackKeepsItsMemory) {
  run_gpus(2,
           [](GpuRank& rank) {
             OnGpu value = some(rank);
             rank.world.all_reduce(value.buffer(DType::F32), Sum).wait();
             rank.world.barrier().wait();
             fake_gpu().freeze_for_good();
             Work work = rank.world.all_reduce(value.buffer(DType::F32), Sum);
             value.let_go();
             const TimePoint start = rank.context.waiter->now();
             EXPECT_NE(error_of<Error>([&] { work.wait(); }), "no error");
             EXPECT_GE(rank.context.waiter->now() - start, seconds(3));  // deadline, time to drain
           },
           {.timeout = seconds(2), .expect_leftovers = true, .keeps_memory = true});
}

TEST(GpuFaults, ARankThatDoesNotComeIsNamed) {
  run_gpus(2,
           [](GpuRank& rank) {
             const OnGpu value = some(rank);
             if (rank.rank == 1) {
               rank.context.waiter->sleep(seconds(8));
               return;
             }
             EXPECT_THAT(error_of<TimeoutError>([&] {
                           rank.world.all_reduce(value.buffer(DType::F32), Sum).wait_on({nullptr});
                         }),
                         HasSubstr("for rank 1"));
           },
           {.timeout = seconds(5)});
}

}  // namespace
}  // namespace trireme
