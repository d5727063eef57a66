// Streams and events behind Work: a call sees what its stream was given before it, a stream sees
// the result after wait_on(), and memory lives until the GPU no longer uses it.
#include <gtest/gtest.h>

#include "tests/gpu/gpu_ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/staging/device_copies.h"

namespace trireme {
namespace {

using test::Bytes, test::fake_gpu, test::GpuRank, test::leaf, test::OnGpu, test::run_gpus;

Bytes floats(std::size_t count, float value) {
  const std::vector<float> values(count, value);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

TEST(GpuStreams, ACallTakesWhatItsStreamWritesBeforeIt) {
  run_gpus(2, [](GpuRank& rank) {
    void* const stream = rank.gpu->make_stream();
    const OnGpu written = rank.on_gpu(floats(100, 2)), value = rank.on_gpu(floats(100, 1));
    fake_gpu().close_gate(stream);
    rank.gpu->copy(value.data(), written.data(), 400, stream);  // not carried out yet
    const Work work = rank.world.all_reduce(value.buffer(DType::F32, stream), Sum);
    rank.context.waiter->sleep(std::chrono::milliseconds(50));
    EXPECT_FALSE(work.done());
    EXPECT_EQ(value.bytes(), floats(100, 1));
    rank.world.barrier().wait();
    fake_gpu().open_gates();
    work.wait();
    EXPECT_EQ(value.bytes(), floats(100, 4));
    rank.gpu->destroy_stream(stream);
  });
}

// A library whose work for the GPU goes to one stream at present.
class OneStream final : public comm::DeviceCopies {
 public:
  explicit OneStream(void* stream) : stream_{stream} {}
  Stream current_stream(Device) override { return stream_; }
  std::shared_ptr<comm::HostBlock> host_block(std::size_t) override { return nullptr; }
  std::shared_ptr<std::byte> device_memory(std::size_t, Device) override { return nullptr; }
  std::shared_ptr<comm::DeviceMark> fetch(Device, std::span<const comm::StagedBuffer>) override {
    return nullptr;
  }
  std::shared_ptr<comm::DeviceMark> copy(const Buffer&, const Buffer&) override { return nullptr; }
  std::shared_ptr<comm::DeviceMark> store(Device, std::span<const comm::StagedBuffer>) override {
    return nullptr;
  }

 private:
  const Stream stream_;
};

TEST(GpuStreams, ABufferWithoutAStreamBelongsToTheCurrentOne) {
  run_gpus(2, [](GpuRank& rank) {
    void* const stream = rank.gpu->make_stream();
    rank.world.stage_through(std::make_shared<OneStream>(stream));
    const OnGpu written = rank.on_gpu(floats(100, 2)), value = rank.on_gpu(floats(100, 1));
    fake_gpu().close_gate(stream);
    rank.gpu->copy(value.data(), written.data(), 400, stream);
    comm::Arena arena = rank.world.allocate(400, {DeviceKind::Cuda, rank.rank});
    const Buffer zeros = arena.buffer(0, 100, DType::F32);
    const Work work = rank.world.all_reduce(value.buffer(DType::F32), Sum);
    const Work sent = rank.world.broadcast(zeros, 0);
    rank.world.barrier().wait();
    fake_gpu().open_gates();
    work.wait();
    sent.wait();
    EXPECT_EQ(value.bytes(), floats(100, 4));
    const auto* begin = static_cast<const std::byte*>(zeros.data);
    EXPECT_EQ(Bytes(begin, begin + 400), floats(100, 0));
    rank.gpu->destroy_stream(stream);
  });
}

// A call of several steps records its streams when it is made, not when its steps run on the GPU.
TEST(GpuStreams, AllToAllOfUnevenPiecesTakesWhatItsStreamWritesBeforeIt) {
  run_gpus(2, [](GpuRank& rank) {
    void* const stream = rank.gpu->make_stream();
    const OnGpu written = rank.on_gpu(floats(4, 2)), in = rank.on_gpu(floats(4, 1)),
                out = rank.on_gpu(floats(4, 0));
    const std::size_t counts[] = {2, 2};
    fake_gpu().close_gate(stream);
    rank.gpu->copy(in.data(), written.data(), 16, stream);
    const Work work = rank.world.all_to_all_v(in.buffer(DType::F32, stream),
                                              out.buffer(DType::F32, stream), counts, counts);
    rank.world.barrier().wait();
    fake_gpu().open_gates();
    work.wait();
    EXPECT_EQ(out.bytes(), floats(4, 2));
    rank.gpu->destroy_stream(stream);
  });
}

TEST(GpuStreams, WaitOnOrdersAStreamBehindTheCallAndDoesNotBlockTheHost) {
  run_gpus(3, [](GpuRank& rank) {
    void *const before = rank.gpu->make_stream(), *const after = rank.gpu->make_stream();
    const OnGpu value = rank.on_gpu(floats(100, 1)), copy = rank.on_gpu(floats(100, 0));
    fake_gpu().close_gate(before);
    const Work work = rank.world.all_reduce(value.buffer(DType::F32, before), Sum);
    work.wait_on({after});  // returns although the GPU cannot begin
    EXPECT_FALSE(work.done());
    rank.gpu->copy(copy.data(), value.data(), 400, after);
    rank.context.waiter->sleep(std::chrono::milliseconds(20));
    EXPECT_EQ(copy.bytes(), floats(100, 0));
    rank.world.barrier().wait();
    fake_gpu().open_gates();
    const auto copied = rank.gpu->record(after);
    while (!rank.gpu->reached(copied)) rank.context.waiter->sleep(std::chrono::microseconds(50));
    EXPECT_EQ(copy.bytes(), floats(100, 3));
    work.wait();
    rank.gpu->destroy_stream(before);
    rank.gpu->destroy_stream(after);
  });
}

TEST(GpuStreams, CallsFollowOneAnotherWithoutTheHost) {
  run_gpus(2, [](GpuRank& rank) {
    const OnGpu value = rank.on_gpu(floats(50'000, 1));
    std::vector<Work> works;
    for (int i = 0; i < 5; ++i)
      works.push_back(rank.world.all_reduce(value.buffer(DType::F32), Sum));
    works.back().wait();
    EXPECT_EQ(value.bytes(), floats(50'000, 32));
    for (const Work& work : works) EXPECT_TRUE(work.done());
  });
}

// cuMemFree and the loading of a kernel may wait for the GPU, whose work may wait for this rank's
// progress on other ranks.
TEST(GpuStreams, ProgressNeverWaitsForTheGpu) {
  run_gpus(2, [](GpuRank& rank) {
    const OnGpu small = rank.on_gpu(floats(20'000, 1)), large = rank.on_gpu(floats(500'000, 1));
    const auto loaded = [] { return fake_gpu().calls("cuModuleGetFunction"); };
    for (int turn = 0; turn < 2; ++turn) {  // each rank is the first once
      const int before = loaded();
      if (rank.rank == turn) {
        const Work first = rank.world.all_reduce(small.buffer(DType::F32), turn == 0 ? Sum : Max);
        EXPECT_EQ(loaded(), before + 1);
        first.wait();
      } else {
        rank.context.waiter->sleep(std::chrono::milliseconds(5));
        rank.world.all_reduce(small.buffer(DType::F32), turn == 0 ? Sum : Max).wait();
      }
      rank.world.barrier().wait();
    }
    rank.world.all_reduce(large.buffer(DType::F32), Sum).wait();
    rank.world.all_reduce(small.buffer(DType::F32), Sum).wait();
    rank.world.barrier().wait();
    EXPECT_EQ(fake_gpu().calls("cuMemFree"), 0);
    EXPECT_EQ(large.bytes(), floats(500'000, 2));
    rank.world.barrier().wait();
  });
}

TEST(GpuStreams, MemoryLivesUntilTheGpuHasLetGoOfIt) {
  run_gpus(2, [](GpuRank& rank) {
    fake_gpu().set_latency(40);
    OnGpu value = rank.on_gpu(floats(50'000, 1));
    Work work = rank.world.all_reduce(value.buffer(DType::F32), Sum);
    value.let_go();  // a violation if the call did not keep it
    work = Work();
    rank.world.barrier().wait();
    const OnGpu last = rank.on_gpu(floats(10, 1));
    rank.world.all_reduce(last.buffer(DType::F32), Sum).wait();
  });
}

TEST(GpuStreams, ThenAndAllWaitForTheGpu) {
  run_gpus(2, [](GpuRank& rank) {
    const OnGpu one = rank.on_gpu(floats(10, 1)), two = rank.on_gpu(floats(10, 2));
    Bytes seen;
    const Work both[] = {rank.world.all_reduce(one.buffer(DType::F32), Sum),
                         rank.world.all_reduce(two.buffer(DType::F32), Sum)};
    Work::all(both).then([&] { seen = two.bytes(); }).wait();
    EXPECT_EQ(seen, floats(10, 4));
    Work::all(both).wait_on({nullptr});
  });
}

// Peers whose last call has not ended yet still read NCCL's own buffers.
TEST(GpuStreams, ACommunicatorTakesLeaveOfItsPeers) {
  run_gpus(3,
           [](GpuRank& rank) {
             const OnGpu value = rank.on_gpu(floats(10, 1));
             rank.world.all_reduce(value.buffer(DType::F32), Sum).wait();
           },
           {.expect_leave = true});
}

TEST(GpuStreams, ArenasLieOnTheGpu) {
  run_gpus(2, [](GpuRank& rank) {
    comm::Arena arena = rank.world.allocate(4000, {DeviceKind::Cuda, rank.rank});
    const Buffer buffer = arena.buffer(400, 100, DType::F32);
    EXPECT_EQ(buffer.device.kind, DeviceKind::Cuda);
    rank.world.all_reduce(buffer, Sum).wait();
    const auto* begin = static_cast<const std::byte*>(buffer.data);
    EXPECT_EQ(Bytes(begin, begin + 400), floats(100, 0));  // zeroed
  });
}

}  // namespace
}  // namespace trireme
