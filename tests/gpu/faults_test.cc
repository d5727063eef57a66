// Failures: calls that differ, peers that leave, GPUs and communicators that hang or fail. No
// buffer is freed while a GPU may touch it, and no rank waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/gpu_ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/net/transport.h"

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

TEST(GpuFaults, WantOfMemoryHasTheExitCodeOfLibTorchs) {
  run_gpus(1, [](GpuRank& rank) {
    try {
      rank.gpu->allocate(std::size_t{1} << 60);
      ADD_FAILURE() << "it was there";
    } catch (const ResourceError& error) {
      EXPECT_EQ(error.code(), ExitCode::NoDeviceMemory);
      EXPECT_THAT(error.what(), HasSubstr("a smaller batch"));
    }
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

TEST(GpuFaults, ADriverThatIsTooOldForTheKernelsIsNamed) {
  run_gpus(1, [](GpuRank& rank) {
    fake_gpu().refuse_kernels();
    const std::string text =
        error_of<ConfigError>([&] { rank.gpu->load_fold(kernel::Combine::Sum, DType::F32); });
    EXPECT_THAT(text,
                HasSubstr("GPU 0: the provided PTX was compiled with an unsupported toolchain"));
    EXPECT_THAT(text, HasSubstr("the driver is for CUDA 13.0"));
    EXPECT_THAT(text, HasSubstr("Install a newer driver"));
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

// ncclCommAbort waits for its kernels; those of the world are behind those of the group here, and the
// world is aborted first.
TEST(GpuFaults, AGroupBehindOneThatStandsStillIsAbortedToo) {
  run_gpus(2, [](GpuRank& rank) {
    const auto group = rank.world.split(0, rank.rank);
    const OnGpu first = some(rank), second = some(rank);
    void* const stream = rank.gpu->make_stream();
    group->all_reduce(first.buffer(DType::F32), Sum).wait();
    rank.world.all_reduce(second.buffer(DType::F32), Sum).wait();
    rank.world.barrier().wait();
    fake_gpu().freeze();
    const Work stands_still = group->all_reduce(first.buffer(DType::F32), Sum);
    stands_still.wait_on({stream});
    const Work behind = rank.world.all_reduce(second.buffer(DType::F32, stream), Sum);
    behind.wait_on({nullptr});
    rank.world.barrier().wait();
    rank.world.abort(std::make_exception_ptr(StopRequested("enough")));
    EXPECT_THAT(error_of<StopRequested>([&] { behind.wait(); }), HasSubstr("enough"));
    EXPECT_THAT(error_of<StopRequested>([&] { stands_still.wait(); }), HasSubstr("enough"));
    rank.gpu->destroy_stream(stream);
  });
}

TEST(GpuFaults, AMessageGoesOnWhenAnotherRankLeavesInGoodOrder) {
  run_gpus(3, [](GpuRank& rank) {
    rank.world.barrier().wait();
    if (rank.rank == 2) {
      rank.context.world.reset();
      rank.context.transport.reset();  // its process has ended
      return;
    }
    fake_gpu().freeze();
    const OnGpu value = rank.on_gpu(leaf(DType::F32, 9999, rank.rank));
    const Work work = rank.rank == 0 ? rank.world.send(value.buffer(DType::F32), 1)
                                     : rank.world.recv(value.buffer(DType::F32), 0);
    rank.context.waiter->sleep(seconds(5));
    fake_gpu().thaw();
    EXPECT_EQ(error_of<Error>([&] { work.wait(); }), "no error");
    EXPECT_EQ(value.bytes(), leaf(DType::F32, 9999, 0));
  });
}

// A transport that may say that all peers are lost, though messages still come through.
class PessimisticTransport final : public net::Transport {
 public:
  explicit PessimisticTransport(std::shared_ptr<net::Transport> inner) : inner_(std::move(inner)) {}
  bool all_lost = false;

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::shared_ptr<Waiter> waiter() const override { return inner_->waiter(); }
  std::string_view name() const noexcept override { return inner_->name(); }
  Work send(int peer, net::Tag tag, std::span<const std::byte> bytes) override {
    return inner_->send(peer, tag, bytes);
  }
  Work recv(int peer, net::Tag tag, std::span<std::byte> bytes) override {
    return inner_->recv(peer, tag, bytes);
  }
  bool lost(int peer) const noexcept override { return all_lost || inner_->lost(peer); }
  void abort(std::exception_ptr error) noexcept override { inner_->abort(std::move(error)); }
  net::Capabilities capabilities() noexcept override { return {}; }

 private:
  const std::shared_ptr<net::Transport> inner_;
};

// A second for the last data, counted anew for a call after one that ended well.
TEST(GpuFaults, EveryCallHasTimeForItsLastDataAfterAPeerHasGone) {
  run_gpus(2, [](GpuRank& rank) {
    const auto transport = std::make_shared<PessimisticTransport>(rank.context.transport);
    comm::CommunicatorOptions options;
    options.device = comm::nccl::backend_on(rank.gpu);
    rank.world.barrier().wait();  // it has no message under way
    comm::Communicator world(transport, std::move(options));
    const OnGpu value = some(rank);
    for (int turn = 0; turn < 2; ++turn) {
      rank.world.barrier().wait();
      fake_gpu().freeze();
      const Work work = rank.rank == 0 ? world.recv(value.buffer(DType::F32), 1)
                                       : world.send(value.buffer(DType::F32), 0);
      work.wait_on({nullptr});
      transport->all_lost = rank.rank == 0;
      rank.context.waiter->sleep(std::chrono::milliseconds(700));
      fake_gpu().thaw();
      EXPECT_EQ(error_of<Error>([&] { work.wait(); }), "no error");
    }
  });
}

TEST(GpuFaults, BuffersOfAnotherKindOfDeviceAreRefused) {
  run_gpus(1, [](GpuRank& rank) {
    const OnGpu value = some(rank);
    Buffer buffer = value.buffer(DType::F32);
    buffer.device.kind = DeviceKind::Xpu;
    EXPECT_THAT(error_of<ConfigError>([&] { rank.world.all_reduce(buffer, Sum).wait(); }),
                HasSubstr("on device 0 of another kind, this rank's is GPU 0"));
    EXPECT_THAT(error_of<ConfigError>([&] { rank.world.allocate(100, buffer.device); }),
                HasSubstr("device 0 of another kind is not this rank's"));
  });
}

TEST(GpuFaults, VersionsOfNcclAreWrittenAsItsMakerDoes) {
  EXPECT_EQ(comm::nccl::nccl_version_text(2804), "2.8.4");  // four digits up to 2.8
  EXPECT_EQ(comm::nccl::nccl_version_text(21400), "2.14.0");
  EXPECT_EQ(comm::nccl::nccl_version_text(22803), "2.28.3");
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
