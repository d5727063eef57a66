// Collectives on GPU memory against the same calls on CPU memory, bit for bit, on fake GPUs: every
// collective and type, counts that do and do not divide, one round and several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/gpu/gpu_ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/choice/measure.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/nccl/gpu_plan.h"
#include "trireme/comm/negotiate/negotiate.h"
#include "trireme/kernel/tree_sum.h"

namespace trireme {
namespace {

using comm::Communicator;
using test::buffer_over, test::Bytes, test::fake_gpu, test::GpuRank, test::GpuRun, test::kTypes;
using test::leaf, test::OnGpu, test::run_gpus;
using ::testing::HasSubstr;
using Counts = std::vector<std::size_t>;

constexpr int kSizes[] = {1, 2, 3, 4, 5};
// Fewer elements than ranks, folded by every rank, and in slices with and without a remainder.
constexpr std::size_t kCounts[] = {0, 1, 7, 4099, 40'000};
constexpr ReduceOp kOps[] = {Sum, Mean, Min, Max, Product};

bool defined(ReduceOp op, DType dtype) { return op != ReduceOp::Mean || kernel::can_divide(dtype); }

Bytes mine(const GpuRank& rank, DType dtype, std::size_t count) {
  return leaf(dtype, count, static_cast<std::uint64_t>(rank.rank) + 1);
}

// Runs `call(in, out)` on CPU and on GPU memory and compares `out`.
void compare(GpuRank& rank, DType dtype, const Bytes& in, std::size_t out_bytes,
             const std::function<Work(Buffer in, Buffer out)>& call) {
  Bytes cpu_in = in, cpu_out(out_bytes);
  call(buffer_over(cpu_in, dtype), buffer_over(cpu_out, dtype)).wait();
  const OnGpu gpu_in = rank.on_gpu(in), gpu_out = rank.on_gpu(Bytes(out_bytes));
  call(gpu_in.buffer(dtype), gpu_out.buffer(dtype)).wait();
  EXPECT_EQ(gpu_out.bytes(), cpu_out) << name_of(dtype) << ", " << in.size() << " bytes";
  EXPECT_EQ(gpu_in.bytes(), in);
}

TEST(GpuCollectives, AllReduceGivesTheCpusBits) {
  for (const int size : kSizes) {
    run_gpus(size, [](GpuRank& rank) {
      for (const DType dtype : kTypes) {
        for (const std::size_t count : kCounts) {
          for (const ReduceOp op : kOps) {
            if (!defined(op, dtype)) continue;
            Bytes cpu = mine(rank, dtype, count);
            const OnGpu gpu = rank.on_gpu(cpu);
            rank.world.all_reduce(buffer_over(cpu, dtype), op).wait();
            rank.world.all_reduce(gpu.buffer(dtype), op).wait();
            ASSERT_EQ(gpu.bytes(), cpu) << name_of(dtype) << " " << count << " op " << int(op);
          }
        }
      }
    });
  }
}

TEST(GpuCollectives, TermsAreFoldedByTheTree) {
  for (const int size : kSizes) {
    run_gpus(size, [](GpuRank& rank) {
      for (const DType dtype : {DType::F32, DType::BF16}) {
        for (const std::uint32_t total : {1u, 3u, 12u, 33u}) {
          for (const std::size_t count : {5ul, 20'001ul}) {
            std::vector<Bytes> cpu;
            std::vector<OnGpu> gpu;
            std::vector<comm::Term> cpu_terms, gpu_terms;
            const auto share = kernel::contiguous_share(total, rank.size, rank.rank);
            for (const auto& node : kernel::maximal_nodes(share, total)) {
              cpu.push_back(leaf(dtype, count, node.first));
              gpu.push_back(rank.on_gpu(cpu.back()));
              cpu_terms.push_back({{}, node.first, node.count});
              gpu_terms.push_back({gpu.back().buffer(dtype), node.first, node.count});
            }
            for (std::size_t i = 0; i < cpu.size(); ++i)
              cpu_terms[i].value = buffer_over(cpu[i], dtype);
            Bytes cpu_out(count * size_of(dtype));
            const OnGpu gpu_out = rank.on_gpu(cpu_out);
            rank.world.all_reduce(cpu_terms, total, buffer_over(cpu_out, dtype)).wait();
            rank.world.all_reduce(gpu_terms, total, gpu_out.buffer(dtype)).wait();
            ASSERT_EQ(gpu_out.bytes(), cpu_out) << total << " leaves, " << count;
          }
        }
      }
    });
  }
}

TEST(GpuCollectives, ReduceAndReduceScatterGiveTheCpusBits) {
  for (const int size : kSizes) {
    run_gpus(size, [](GpuRank& rank) {
      const auto ranks = static_cast<std::size_t>(rank.size);
      for (const DType dtype : kTypes) {
        const std::size_t width = size_of(dtype);
        for (const std::size_t count : kCounts) {
          const int root = static_cast<int>(count) % rank.size;
          const Bytes in = mine(rank, dtype, count);
          const std::size_t out = rank.rank == root ? in.size() : 0;
          compare(rank, dtype, in, out,
                  [&](Buffer from, Buffer to) { return rank.world.reduce(from, to, Sum, root); });
          compare(rank, dtype, mine(rank, dtype, count * ranks), count * width,
                  [&](Buffer from, Buffer to) { return rank.world.reduce_scatter(from, to, Max); });
          Counts uneven;
          for (std::size_t r = 0; r < ranks; ++r) uneven.push_back(count * (r % 3));
          const std::size_t all = std::accumulate(uneven.begin(), uneven.end(), std::size_t(0));
          compare(rank, dtype, mine(rank, dtype, all), uneven[rank.rank] * width,
                  [&](Buffer from, Buffer to) {
                    return rank.world.reduce_scatter_v(from, to, uneven, Sum);
                  });
        }
      }
    });
  }
}

TEST(GpuCollectives, MovesGiveTheCpusBits) {
  for (const int size : kSizes) {
    run_gpus(size, [](GpuRank& rank) {
      Communicator& world = rank.world;
      const auto ranks = static_cast<std::size_t>(rank.size);
      for (const DType dtype : kTypes) {
        for (const std::size_t count : {0ul, 1ul, 7ul, 5000ul}) {
          const int root = static_cast<int>(count) % rank.size;
          const bool is_root = rank.rank == root;
          const Bytes one = mine(rank, dtype, count), each = mine(rank, dtype, count * ranks);
          compare(rank, dtype, one, each.size(),
                  [&](Buffer from, Buffer to) { return world.all_gather(from, to); });
          compare(rank, dtype, one, is_root ? each.size() : 0,
                  [&](Buffer from, Buffer to) { return world.gather(from, to, root); });
          compare(rank, dtype, is_root ? each : Bytes(), one.size(),
                  [&](Buffer from, Buffer to) { return world.scatter(from, to, root); });
          compare(rank, dtype, each, each.size(),
                  [&](Buffer from, Buffer to) { return world.all_to_all(from, to); });
          Bytes cpu = one;
          const OnGpu gpu = rank.on_gpu(one);
          world.broadcast(buffer_over(cpu, dtype), root).wait();
          world.broadcast(gpu.buffer(dtype), root).wait();
          ASSERT_EQ(gpu.bytes(), cpu);
        }
      }
    });
  }
}

TEST(GpuCollectives, UnevenMovesGiveTheCpusBits) {
  for (const int size : kSizes) {
    run_gpus(size, [](GpuRank& rank) {
      Communicator& world = rank.world;
      const auto ranks = static_cast<std::size_t>(rank.size), own = std::size_t(rank.rank);
      const auto bytes = [](std::size_t count) { return count * size_of(DType::F32); };
      const auto some = [&](std::size_t from, std::size_t to) { return (from * 7 + to * 3) % 5; };
      Counts counts, sent, expected;
      for (std::size_t r = 0; r < ranks; ++r) {
        counts.push_back(11 * (r % 3));
        sent.push_back(some(own, r));
        expected.push_back(some(r, own));
      }
      const auto sum = [](const Counts& all) {
        return std::accumulate(all.begin(), all.end(), std::size_t(0));
      };
      const Bytes piece = mine(rank, DType::F32, counts[own]);
      const Bytes whole = mine(rank, DType::F32, sum(counts));
      const int root = rank.size - 1;
      const bool is_root = rank.rank == root;
      compare(rank, DType::F32, piece, whole.size(),
              [&](Buffer from, Buffer to) { return world.all_gather_v(from, to, counts); });
      compare(rank, DType::F32, piece, is_root ? whole.size() : 0,
              [&](Buffer from, Buffer to) { return world.gather_v(from, to, counts, root); });
      compare(rank, DType::F32, is_root ? whole : Bytes(), piece.size(),
              [&](Buffer from, Buffer to) { return world.scatter_v(from, to, counts, root); });
      compare(rank, DType::F32, mine(rank, DType::F32, sum(sent)), bytes(sum(expected)),
              [&](Buffer from, Buffer to) { return world.all_to_all_v(from, to, sent, expected); });
    });
  }
}

// As an empty tensor of LibTorch. The rank must make the same call as the others nevertheless.
TEST(GpuCollectives, ABufferWithoutElementsMayHaveNoAddress) {
  run_gpus(3, [](GpuRank& rank) {
    const Counts counts{0, 100, 7};
    const int root = 1;
    const std::size_t out = rank.rank == root ? 107 * size_of(DType::F32) : 0;
    compare(rank, DType::F32, mine(rank, DType::F32, counts[std::size_t(rank.rank)]), out,
            [&](Buffer from, Buffer to) {
              if (from.count == 0) from.data = nullptr;
              return rank.world.gather_v(from, to, counts, root);
            });
  });
}

TEST(GpuCollectives, IntegersAreReducedByNcclAndFloatsByTheTree) {
  run_gpus(3, [](GpuRank& rank) {
    const OnGpu integers = rank.on_gpu(mine(rank, DType::I64, 999));
    rank.world.all_reduce(integers.buffer(DType::I64), Sum).wait();
    EXPECT_EQ(fake_gpu().calls("ncclSend"), 0);
    const OnGpu floats = rank.on_gpu(mine(rank, DType::F32, 99'999));
    rank.world.all_reduce(floats.buffer(DType::F32), Sum).wait();
    EXPECT_GT(fake_gpu().calls("ncclSend"), 0);
    EXPECT_GT(fake_gpu().calls("ncclAllGather"), 0);
  });
}

// The fake NCCL adds from the last rank down; with four ranks the order is visible.
TEST(GpuCollectives, NativeIsNcclsOwnOrder) {
  const auto differs = [](const GpuRun& run, std::string_view algorithm) {
    bool other_bits = false;
    run_gpus(
        4,
        [&](GpuRank& rank) {
          Bytes cpu = mine(rank, DType::F32, 9999);
          const OnGpu gpu = rank.on_gpu(cpu);
          rank.world.all_reduce(buffer_over(cpu, DType::F32), Sum).wait();
          rank.world.all_reduce(gpu.buffer(DType::F32), Sum, {.algorithm = algorithm}).wait();
          if (gpu.bytes() != cpu) other_bits = true;
        },
        run);
    return other_bits;
  };
  EXPECT_FALSE(differs({}, {}));
  EXPECT_TRUE(differs({}, "nccl-native"));
  EXPECT_TRUE(differs({.algorithm = "nccl-native"}, {}));
  EXPECT_FALSE(differs({.algorithm = "nccl-native"}, "auto"));
  EXPECT_TRUE(differs({.reproducible = false}, {}));
}

// NCCL's own Max returns the other number if one is a NaN.
TEST(GpuCollectives, MinAndMaxOfFloatsAreNcclsOwnOnlyByName) {
  run_gpus(
      2,
      [](GpuRank& rank) {
        const OnGpu gpu = rank.on_gpu(mine(rank, DType::F32, 9999));
        for (const ReduceOp op : {Min, Max})
          rank.world.all_reduce(gpu.buffer(DType::F32), op).wait();
        rank.world.barrier().wait();
        EXPECT_EQ(fake_gpu().calls("ncclAllReduce"), 0);
        rank.world.barrier().wait();
        rank.world.all_reduce(gpu.buffer(DType::I32), Max).wait();
        rank.world.all_reduce(gpu.buffer(DType::F32), Max, {.algorithm = "nccl-native"}).wait();
        rank.world.barrier().wait();
        EXPECT_EQ(fake_gpu().calls("ncclAllReduce"), 4);
      },
      {.reproducible = false});
}

TEST(GpuCollectives, NativeTakesAnyNumberOfTerms) {
  for (const int size : {2, 3, 5}) {
    run_gpus(size,
             [](GpuRank& rank) {
               for (const std::uint32_t total : {1u, 12u}) {
                 std::vector<OnGpu> values;
                 std::vector<comm::Term> terms;
                 const auto share = kernel::contiguous_share(total, rank.size, rank.rank);
                 for (const auto& node : kernel::maximal_nodes(share, total)) {
                   const std::vector<float> ones(100, static_cast<float>(node.count));
                   const auto bytes = std::as_bytes(std::span(ones));
                   values.push_back(rank.on_gpu({bytes.begin(), bytes.end()}));
                   terms.push_back({values.back().buffer(DType::F32), node.first, node.count});
                 }
                 const OnGpu out = rank.on_gpu(Bytes(400));
                 rank.world.all_reduce(terms, total, out.buffer(DType::F32)).wait();
                 const auto sum = out.bytes();
                 float first;
                 std::memcpy(&first, sum.data(), sizeof first);
                 EXPECT_EQ(first, static_cast<float>(total));
               }
             },
             {.algorithm = "nccl-native"});
  }
}

TEST(GpuCollectives, ManyAndGroupsOfRanks) {
  run_gpus(4, [](GpuRank& rank) {
    Bytes cpu = mine(rank, DType::F32, 300), more = mine(rank, DType::BF16, 77);
    const OnGpu gpu = rank.on_gpu(cpu), gpu_more = rank.on_gpu(more);
    const Buffer cpus[] = {buffer_over(cpu, DType::F32), buffer_over(more, DType::BF16)};
    const Buffer gpus[] = {gpu.buffer(DType::F32), gpu_more.buffer(DType::BF16)};
    const auto half = rank.world.split(rank.rank % 2, rank.rank);
    half->all_reduce_many(cpus, Sum).wait();
    half->all_reduce_many(gpus, Sum).wait();
    EXPECT_EQ(gpu.bytes(), cpu);
    EXPECT_EQ(gpu_more.bytes(), more);
    rank.world.all_reduce_many(cpus, Mean).wait();
    rank.world.all_reduce_many(gpus, Mean).wait();
    EXPECT_EQ(gpu.bytes(), cpu);
  });
}

TEST(GpuCollectives, AreMeasured) {
  run_gpus(3, [](GpuRank& rank) {
    for (const comm::OpKind kind :
         {comm::OpKind::AllReduce, comm::OpKind::ReduceScatter, comm::OpKind::AllToAll}) {
      const auto measured = comm::measure(rank.world, {.kind = kind,
                                                       .sizes = {1200, 48},
                                                       .device = {DeviceKind::Cuda, rank.rank},
                                                       .seconds = 1e-6});
      ASSERT_EQ(measured.size(), 2u);
      EXPECT_EQ(measured[0].bytes, 1200u);
    }
  });
}

// A GPU's work space is bounded, and all ranks take the same rounds.
TEST(GpuPlan, LongCallsTakeRoundsOfBoundedWorkSpace) {
  std::byte* const memory = nullptr;
  for (const int size : {2, 3, 8}) {
    const comm::FoldPlan plan = comm::make_fold_plan(static_cast<std::uint32_t>(size), size);
    comm::Operation op;
    op.kind = comm::OpKind::AllReduce;
    op.dtype = DType::F32;
    op.count = (1u << 28) + 5;
    op.total = static_cast<std::uint32_t>(size);
    op.algorithm = comm::nccl::kFixedTree;
    op.terms = {{{memory, op.count}, 0, 1}};
    op.out = {memory, op.count};
    std::vector<std::size_t> gathers;
    for (int rank = 0; rank < size; ++rank) {
      const comm::nccl::GpuPlace place{rank, size, plan};
      EXPECT_LE(comm::nccl::scratch_bytes(op, place), 2 * comm::nccl::kGpuScratch);
      std::size_t folded = 0, rounds = 0;
      for (const auto& step : comm::nccl::steps_of(op, place, memory)) {
        if (step.fold) folded += step.fold->count;
        rounds += step.kind == comm::nccl::GpuStep::Fold;
      }
      EXPECT_GE(folded, op.count / size);
      EXPECT_LE(folded, op.count / size + comm::nccl::kFoldEverywhere);
      gathers.push_back(rounds);
    }
    EXPECT_GT(gathers.front(), 2u);
    EXPECT_THAT(gathers, ::testing::Each(gathers.front()));
  }
}

TEST(GpuCollectives, RefusesWhatAGpuCannotDo) {
  run_gpus(2, [](GpuRank& rank) {
    Communicator& world = rank.world;
    const OnGpu gpu = rank.on_gpu(Bytes(64));
    Bytes cpu(64);
    const auto refused = [&](const auto& call) {
      try {
        call();
      } catch (const ConfigError& error) {
        return std::string(error.what());
      }
      return std::string("not refused");
    };
    const Buffer here = buffer_over(cpu, DType::F32), there = gpu.buffer(DType::F32);
    EXPECT_THAT(refused([&] { world.all_reduce(there, Sum, {.algorithm = "ring"}).wait(); }),
                HasSubstr("algorithm ring works on CPU memory only"));
    EXPECT_THAT(refused([&] { world.all_reduce(here, Sum, {.algorithm = "nccl-native"}).wait(); }),
                HasSubstr("nccl-native is for GPU memory"));
    EXPECT_THAT(refused([&] {
                  world.all_reduce_many({&here, 1}, Sum, {.algorithm = "nccl-native"}).wait();
                }),
                HasSubstr("nccl-native is for GPU memory"));
    EXPECT_THAT(refused([&] {
                  sparse_all_reduce(world, {.width = 1, .num_rows = 1, .dtype = DType::F32}, Sum,
                                    {.op = {.algorithm = "nccl-native"}});
                }),
                HasSubstr("nccl-native is for GPU memory"));
    EXPECT_THAT(refused([&] { world.all_to_all(here, there).wait(); }),
                HasSubstr("different devices"));
    Buffer elsewhere = there;
    elsewhere.device.index = 7;
    EXPECT_THAT(refused([&] { world.all_reduce(elsewhere, Sum).wait(); }),
                HasSubstr("on GPU 7, this rank's is GPU " + std::to_string(rank.rank)));
    comm::Negotiator negotiator(world);
    for (const auto& call :
         {std::function([&] { negotiator.all_reduce("x", there, Sum).wait(); }),
          std::function([&] { negotiator.broadcast("x", there, 0).wait(); }),
          std::function([&] { negotiator.all_gather("x", there.slice(0, 8), there).wait(); })})
      EXPECT_THAT(refused(call), HasSubstr("x lies on a device"));
  });
}

TEST(GpuLibrary, SaysWhatThereIsOrWhyNot) {
  EXPECT_THAT(comm::nccl::describe_gpus({TRIREME_FAKE_GPU, TRIREME_FAKE_GPU}),
              HasSubstr("8 x Made-up GPU, CUDA 13.0, NCCL 2.28.3"));
  const auto library = comm::nccl::open_cuda_library({TRIREME_FAKE_GPU, TRIREME_FAKE_GPU});
  EXPECT_EQ(comm::nccl::list_gpus(*library).at(0).memory, 16'000'000'000);
  EXPECT_THAT(comm::nccl::describe_gpus({TRIREME_FAKE_GPU, "/nowhere/libnccl.so.2"}),
              HasSubstr("none: no NCCL"));
  EXPECT_THAT(comm::nccl::describe_gpus({"/nowhere/libcuda.so.1", TRIREME_FAKE_GPU}),
              HasSubstr("none: no CUDA driver"));
}

TEST(GpuCollectives, WithoutNcclGpuMemoryIsRefused) {
  comm::simulate(2, {}, [](comm::SimulatedRank& rank) {
    Buffer buffer{nullptr, 0, DType::F32, {DeviceKind::Cuda, 0}};
    std::byte byte;
    buffer.data = &byte;
    EXPECT_THROW(rank.world->all_reduce(buffer, Sum).wait(), ConfigError);
    EXPECT_THROW(rank.world->allocate(16, {DeviceKind::Cuda, 0}), ConfigError);
  });
  comm::SimulationOptions native;
  native.world.algorithm = "nccl-native";
  EXPECT_THROW(comm::simulate(2, native, [](comm::SimulatedRank&) {}), ConfigError);
}

}  // namespace
}  // namespace trireme
