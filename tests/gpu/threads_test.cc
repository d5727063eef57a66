// The same over real transports and clocks. Each rank is a thread with its own Waiter, whose
// background thread and timers progress the fake GPU while nobody waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/conformance/collectives/groups.h"
#include "tests/gpu/gpu_ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

namespace trireme {
namespace {

using comm::Communicator;
using comm::nccl::backend_on;
using comm::nccl::Gpu;
using test::buffer_over, test::Bytes, test::fake_gpu, test::leaf, test::OnGpu;
using ::testing::HasSubstr;

void run(const std::string& transport, int size, Duration timeout,
         const std::function<void(Communicator&, std::shared_ptr<Gpu>)>& body) {
  const auto library = test::fake_library();
  const std::size_t before = fake_gpu().leftovers();
  test::Group group{transport, "auto", size};
  group.prepare = [&](int rank, comm::CommunicatorOptions& options) {
    options.device = backend_on(std::make_shared<Gpu>(library, rank));
    options.timeout = timeout;
  };
  test::run_group(group, [&](Communicator& world) {
    body(world, std::make_shared<Gpu>(library, world.rank()));
  });
  EXPECT_EQ(fake_gpu().first_violation(), "");
  EXPECT_EQ(fake_gpu().leftovers(), before) << fake_gpu().leftovers_text();
  fake_gpu().reset();
}

class GpuThreads : public ::testing::TestWithParam<std::string> {};

TEST_P(GpuThreads, ManyCallsInFlight) {
  for (const int size : {2, 3}) {
    run(GetParam(), size, std::chrono::seconds(30), [](Communicator& world, auto gpu) {
      std::vector<Bytes> expected;
      std::vector<OnGpu> values;
      std::vector<Work> works;
      for (std::size_t i = 0; i < 60; ++i) {
        const Bytes one = leaf(DType::F32, 1 + i * 331, std::uint64_t(world.rank()) + i);
        expected.push_back(one);
        values.emplace_back(gpu, one);
        works.push_back(world.all_reduce(values.back().buffer(DType::F32), Sum));
      }
      for (std::size_t i = 0; i < works.size(); ++i) {
        world.all_reduce(buffer_over(expected[i], DType::F32), Sum).wait();
        works[i].wait();
        ASSERT_EQ(values[i].bytes(), expected[i]) << i;
      }
    });
  }
}

TEST_P(GpuThreads, MessagesAndDroppedWorks) {
  run(GetParam(), 2, std::chrono::seconds(30), [](Communicator& world, auto gpu) {
    const int peer = 1 - world.rank();
    for (int turn = 0; turn < 20; ++turn) {
      const OnGpu out(gpu, leaf(DType::I64, 999, std::uint64_t(world.rank())));
      const OnGpu in(gpu, Bytes(out.bytes().size())), sum(gpu, leaf(DType::I64, 50, 1));
      const Work sent = world.send(out.buffer(DType::I64), peer);
      Work dropped = world.all_reduce(sum.buffer(DType::I64), Min);
      dropped = Work();
      world.recv(in.buffer(DType::I64), peer).wait();
      sent.wait();
      ASSERT_EQ(in.bytes(), leaf(DType::I64, 999, std::uint64_t(peer)));
    }
    const OnGpu last(gpu, Bytes(8));
    world.all_reduce(last.buffer(DType::I64), Sum).wait();  // all calls before it have ended
  });
}

// No thread waits on the host and nothing arrives over the transport: only the timers notice.
TEST_P(GpuThreads, TheWatchNeedsNobodyToWait) {
  run(GetParam(), 2, std::chrono::seconds(1), [](Communicator& world, auto gpu) {
    const OnGpu value(gpu, leaf(DType::F32, 9999, 1));
    world.all_reduce(value.buffer(DType::F32), Sum).wait();
    world.barrier().wait();
    fake_gpu().freeze();
    const TimePoint start = steady_now();
    const Work work = world.all_reduce(value.buffer(DType::F32), Sum, {.label = "bucket 3"});
    while (!work.done() && steady_now() - start < std::chrono::seconds(10))
      std::this_thread::yield();
    ASSERT_TRUE(work.done());
    EXPECT_GE(steady_now() - start, std::chrono::milliseconds(900));
    try {
      work.wait();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("all_reduce bucket 3"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, GpuThreads, ::testing::Values("shm", "tcp"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace trireme
