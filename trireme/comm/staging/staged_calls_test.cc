// Collectives and messages on a made-up device whose copies end late.
#include "trireme/comm/staging/staged_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::staged_calls_test {
namespace {

using comm::DeviceMark;
using comm::HostBlock;
using comm::StagedBuffer;
using testing::RankContext;
using testing::run_ranks;

constexpr Device kDevice{DeviceKind::Other, 0};

struct HeapBlock final : HostBlock {
  explicit HeapBlock(std::size_t count) : memory(count, std::byte{0xEE}) {}
  std::span<std::byte> bytes() noexcept override { return memory; }
  std::vector<std::byte> memory;
};

// A stream whose next piece of work runs when somebody has asked for a mark three times.
class LateCopies final : public comm::DeviceCopies,
                         public std::enable_shared_from_this<LateCopies> {
 public:
  Stream current_stream(Device) override { return {}; }
  std::shared_ptr<HostBlock> host_block(std::size_t bytes) override {
    return std::make_shared<HeapBlock>(bytes);
  }
  std::shared_ptr<std::byte> device_memory(std::size_t bytes, Device) override {
    return {new std::byte[bytes](), std::default_delete<std::byte[]>()};
  }
  std::shared_ptr<DeviceMark> fetch(Device, std::span<const StagedBuffer> buffers) override {
    return enqueue(buffers, [](const StagedBuffer& one) {
      std::memcpy(one.host->bytes().data(), one.buffer.data, one.buffer.bytes());
    });
  }
  std::shared_ptr<DeviceMark> store(Device, std::span<const StagedBuffer> buffers) override {
    return enqueue(buffers, [](const StagedBuffer& one) {
      std::memcpy(one.buffer.data, one.host->bytes().data(), one.buffer.bytes());
    });
  }
  std::shared_ptr<DeviceMark> copy(const Buffer& to, const Buffer& from) override {
    ++copies_within_;
    work_.push_back([to, from] {
      if (to.bytes() > 0) std::memmove(to.data, from.data, to.bytes());
    });
    return std::make_shared<Mark>(shared_from_this(), ++enqueued_);
  }
  std::size_t copies_within() const { return copies_within_; }
  void break_down() { broken_ = true; }
  void hang(std::size_t after = 0) { end_ = after; }
  void go_on() { end_ = kNever; }
  /// The marks for which streams were told to wait, and the streams.
  const std::vector<std::pair<std::size_t, void*>>& waits() const { return waits_; }
  std::size_t enqueued() const { return enqueued_; }
  std::size_t done() const { return done_; }

 private:
  struct Mark final : DeviceMark {
    Mark(std::shared_ptr<LateCopies> copies, std::size_t number)
        : copies(std::move(copies)), number(number) {}
    bool reached() override { return copies->reached(number); }
    void wait_on(Stream stream) override { copies->waits_.emplace_back(number, stream.handle); }
    std::shared_ptr<LateCopies> copies;
    std::size_t number;
  };
  template <class Copy>
  std::shared_ptr<DeviceMark> enqueue(std::span<const StagedBuffer> buffers, Copy copy) {
    work_.push_back([all = std::vector(buffers.begin(), buffers.end()), copy] {
      for (const StagedBuffer& one : all) copy(one);
    });
    return std::make_shared<Mark>(shared_from_this(), ++enqueued_);
  }
  bool reached(std::size_t number) {
    if (broken_) throw ResourceError("the device has fallen off the bus", {});
    if (done_ < std::min(number, end_) && ++asked_ % 3 == 0) {
      work_.front()();
      work_.pop_front();
      ++done_;
    }
    return done_ >= number;
  }

  std::deque<std::function<void()>> work_;
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  std::vector<std::pair<std::size_t, void*>> waits_;
  std::size_t enqueued_ = 0, done_ = 0, asked_ = 0, copies_within_ = 0, end_ = kNever;
  bool broken_ = false;
};

Buffer on_device(std::vector<float>& values) {
  Buffer buffer = Buffer::of(std::span(values));
  buffer.device = kDevice;
  return buffer;
}

std::vector<float> numbers(std::size_t count, int rank) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(100 * rank));
  return values;
}

TEST(StagedCalls, GiveWhatTheHostGives) {
  for (const int size : {1, 2, 3, 5}) {
    for (const std::size_t count : {std::size_t{2}, std::size_t{5000}}) {
      run_ranks(size, [&](RankContext& rank) {
        rank.world->stage_through(std::make_shared<LateCopies>());
        std::vector<float> device = numbers(count, rank.rank), host = device;
        // Two calls are under way at once.
        std::vector<float> root = numbers(count, rank.rank + 7);
        const Work first = rank.world->all_reduce(on_device(device), ReduceOp::Sum);
        const Work second = rank.world->broadcast(on_device(root), size - 1);
        first.wait();
        second.wait();
        rank.world->all_reduce(Buffer::of(std::span(host)), ReduceOp::Sum).wait();
        EXPECT_EQ(device, host);
        EXPECT_EQ(root, numbers(count, size - 1 + 7));
      });
    }
  }
}

TEST(StagedCalls, GatherAndExchangeUnevenPieces) {
  run_ranks(3, [](RankContext& rank) {
    rank.world->stage_through(std::make_shared<LateCopies>());
    const std::vector<std::size_t> counts{1, 0, 3};
    const auto own = counts[static_cast<std::size_t>(rank.rank)];
    std::vector<float> mine = numbers(own, rank.rank), all(4), expected{0, 200, 201, 202};
    rank.world->all_gather_v(on_device(mine), on_device(all), counts).wait();
    EXPECT_EQ(all, expected);

    // Rank r sends r + 1 numbers to each rank.
    const std::vector<std::size_t> sends(3, static_cast<std::size_t>(rank.rank) + 1);
    const std::vector<std::size_t> receives{1, 2, 3};
    std::vector<float> out(3 * sends[0], static_cast<float>(rank.rank)), in(6);
    rank.world->all_to_all_v(on_device(out), on_device(in), sends, receives).wait();
    EXPECT_EQ(in, (std::vector<float>{0, 1, 1, 2, 2, 2}));
  });
}

TEST(StagedCalls, AStreamCanWaitForTheResultInsteadOfTheHost) {
  run_ranks(2, [](RankContext& rank) {
    const auto copies = std::make_shared<LateCopies>();
    rank.world->stage_through(copies);
    copies->hang(/*after=*/1);  // the copy to the host ends, that of the result does not
    std::vector<float> values(1000, 1.0f + static_cast<float>(rank.rank));
    const Work work = rank.world->all_reduce(on_device(values), ReduceOp::Sum);
    int stream = 0;
    work.wait_on({&stream});
    EXPECT_FALSE(work.done());
    EXPECT_THAT(copies->waits(), ::testing::ElementsAre(std::pair<std::size_t, void*>(2, &stream)));
    copies->go_on();
    work.wait();
    EXPECT_EQ(values, std::vector<float>(1000, 3));
  });
}

TEST(StagedCalls, AStreamWaitsOnlyUntilAMessageHasLeftTheDevice) {
  run_ranks(2, [](RankContext& rank) {
    const auto copies = std::make_shared<LateCopies>();
    rank.world->stage_through(copies);
    std::vector<float> values = numbers(1000, 3 * rank.rank);
    Work sent;
    if (rank.rank == 0) {
      sent = rank.world->send(on_device(values), 1);
      sent.wait_on({});  // nobody receives it yet
      EXPECT_EQ(copies->waits().size(), 1u);
    }
    rank.world->barrier().wait();
    if (rank.rank == 1) rank.world->recv(on_device(values), 0).wait();
    sent.wait();
    EXPECT_EQ(values, numbers(1000, 0));
  });
}

TEST(StagedCalls, AResultThatFailsBehindAWaitingStreamBreaksTheGroup) {
  run_ranks(2, [](RankContext& rank) {
    const auto copies = std::make_shared<LateCopies>();
    rank.world->stage_through(copies);
    copies->hang(/*after=*/1);
    std::vector<float> values = numbers(1000, rank.rank);
    rank.world->all_reduce(on_device(values), ReduceOp::Sum).wait_on({});
    if (rank.rank == 1) copies->break_down();
    const auto go_on = [&] {
      for (int i = 0; i < 10'000; ++i) rank.world->barrier().wait();
    };
    EXPECT_THROW(go_on(), Error);  // from when the device is next asked
  });
}

TEST(StagedCalls, AGroupThatStreamsWaitedForMayBeDestroyed) {
  run_ranks(2, [](RankContext& rank) {
    const auto copies = std::make_shared<LateCopies>();
    rank.world->stage_through(copies);
    std::vector<float> values(1000, 1);
    {
      const auto group = rank.world->split(0, rank.rank);
      group->all_reduce(on_device(values), ReduceOp::Sum).wait_on({});
    }
    EXPECT_EQ(values, std::vector<float>(1000, 2));
    rank.world->barrier().wait();
  });
}

// Nothing of it comes to the host.
TEST(StagedCalls, OneRanksCollectivesStayOnTheDevice) {
  run_ranks(1, [](RankContext& rank) {
    const auto copies = std::make_shared<LateCopies>();
    rank.world->stage_through(copies);
    const std::vector<float> given = numbers(5000, 3);
    const std::vector<std::size_t> all_of_them{given.size()};
    std::vector<Work> works;
    std::deque<std::vector<float>> in, out;
    const auto call = [&](auto method) {
      in.push_back(given);
      out.push_back(numbers(given.size(), 9));
      works.push_back(method(on_device(in.back()), on_device(out.back())));
    };
    comm::Communicator& world = *rank.world;
    call([&](Buffer from, Buffer to) {
      const comm::Term term{from, 0, 6};
      return world.all_reduce({&term, 1}, 6, to);
    });
    call([&](Buffer from, Buffer to) { return world.all_gather(from, to); });
    call([&](Buffer from, Buffer to) { return world.all_gather_v(from, to, all_of_them); });
    call([&](Buffer from, Buffer to) { return world.reduce_scatter(from, to, ReduceOp::Sum); });
    call([&](Buffer from, Buffer to) { return world.reduce(from, to, ReduceOp::Mean, 0); });
    call([&](Buffer from, Buffer to) { return world.gather(from, to, 0); });
    call([&](Buffer from, Buffer to) { return world.scatter(from, to, 0); });
    call([&](Buffer from, Buffer to) { return world.all_to_all(from, to); });
    call([&](Buffer from, Buffer to) {
      return world.all_to_all_v(from, to, all_of_them, all_of_them);
    });
    std::vector<float> in_place = given;
    works.push_back(world.all_reduce(on_device(in_place), ReduceOp::Mean));
    works.push_back(world.broadcast(on_device(in_place), 0));
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i].wait();
      EXPECT_GT(copies->done(), i);
      EXPECT_EQ(i < out.size() ? out[i] : in_place, given) << i;
    }
    EXPECT_EQ(in_place, given);
    EXPECT_EQ(copies->copies_within(), works.size());
    EXPECT_EQ(copies->enqueued(), works.size());
    EXPECT_EQ(copies->done(), works.size());
  });
}

void expect_order(std::uint64_t seed, bool mixed) {
  run_ranks(2,
            [&](RankContext& rank) {
              rank.world->stage_through(std::make_shared<LateCopies>());
              std::vector<std::vector<float>> values(4, std::vector<float>(1000));
              std::vector<Work> works;
              for (std::size_t i = 0; i < 4; ++i) {
                if (rank.rank == 0) values[i] = numbers(1000, static_cast<int>(i));
                const bool on_host = mixed && i % 2 == 1;
                const Buffer buffer =
                    on_host ? Buffer::of(std::span(values[i])) : on_device(values[i]);
                works.push_back(rank.rank == 0 ? rank.world->send(buffer, 1)
                                               : rank.world->recv(buffer, 0));
              }
              Work::all(works).wait();
              for (std::size_t i = 0; i < 4; ++i)
                EXPECT_EQ(values[i], numbers(1000, static_cast<int>(i))) << "message " << i;
            },
            {.seed = seed});
}

TEST(StagedCalls, MessagesKeepTheirOrder) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) expect_order(seed, false);
}

TEST(StagedCalls, MessagesFromHostAndDeviceKeepTheirOrder) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) expect_order(seed, true);
}

TEST(StagedCalls, GroupsAndArenasStage) {
  run_ranks(4, [](RankContext& rank) {
    rank.world->stage_through(std::make_shared<LateCopies>());
    const auto half = rank.world->split(rank.rank / 2, 0);
    const comm::Arena arena = half->allocate(16, kDevice);
    const Buffer buffer = arena.buffer(0, 4, DType::F32);
    EXPECT_EQ(buffer.device, kDevice);
    auto* values = static_cast<float*>(buffer.data);
    std::fill_n(values, 4, static_cast<float>(rank.rank));
    half->all_reduce(buffer, ReduceOp::Sum).wait();
    EXPECT_EQ(values[3], rank.rank < 2 ? 1.0f : 5.0f);
  });
}

TEST(StagedCalls, ADeviceThatFailsBreaksTheGroup) {
  run_ranks(2, [](RankContext& rank) {
    const auto copies = std::make_shared<LateCopies>();
    rank.world->stage_through(copies);
    std::vector<float> values = numbers(100, rank.rank);
    if (rank.rank == 1) copies->break_down();
    try {
      rank.world->all_reduce(on_device(values), ReduceOp::Sum).wait();
      ADD_FAILURE() << "the call ended on rank " << rank.rank;
    } catch (const Error& error) {
      const char* said = rank.rank == 1 ? "fallen off the bus" : "";
      EXPECT_THAT(error.what(), ::testing::HasSubstr(said));
    }
  });
}

TEST(StagedCalls, AFailedCallKeepsItsMemoryUntilTheDeviceHasLeftIt) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    int kept = 0;
    std::vector<std::weak_ptr<Waiter>> waiters;
    run_ranks(2,
              [&](RankContext& rank) {
                waiters.push_back(rank.world->waiter());
                const auto copies = std::make_shared<LateCopies>();
                rank.world->stage_through(copies);
                auto values = numbers(100, rank.rank);
                std::vector<Work> works;
                const auto call = [&] {
                  Buffer buffer = on_device(values);
                  buffer.owner = {values.data(),
                                  [&kept, copies, fetch = copies->enqueued() + 1](const void*) {
                                    kept += copies->done() >= fetch;
                                  }};
                  works.push_back(rank.world->all_reduce(std::move(buffer), ReduceOp::Sum));
                };
                if (rank.rank == 0)
                  works.push_back(rank.world->barrier());  // which the other rank does not call
                for (int i = 0; i < 5; ++i) call();
                EXPECT_THROW(works.front().wait(), Error);
                call();  // on a group that has failed
                EXPECT_THROW(works.back().wait(), Error);
                works.clear();
                rank.world.reset();
              },
              {.seed = seed});
    EXPECT_EQ(kept, 12) << "seed " << seed;
    for (const auto& waiter : waiters)
      EXPECT_TRUE(waiter.expired()) << "the network is left behind, seed " << seed;
  }
}

TEST(StagedCalls, BuffersOfADeviceThatHangsAreNeverFreed) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    std::atomic<int> freed = 0;
    run_ranks(2,
              [&](RankContext& rank) {
                const auto copies = std::make_shared<LateCopies>();
                rank.world->stage_through(copies);
                static std::vector<float> values(100);
                Buffer buffer = on_device(values);
                buffer.owner = {values.data(), [&freed](const void*) { ++freed; }};
                copies->hang();
                Work work = rank.world->all_reduce(std::move(buffer), ReduceOp::Sum);
                rank.world.reset();
                EXPECT_THROW(work.wait(), Error);
              },
              {.seed = seed});
    EXPECT_EQ(freed, 0) << "seed " << seed;
  }
}

TEST(StagedCalls, AnAlgorithmThatIsRefusedCopiesNothing) {
  run_ranks(1, [](RankContext& rank) {
    const auto copies = std::make_shared<LateCopies>();
    rank.world->stage_through(copies);
    std::vector<float> values(3);
    EXPECT_THROW((void)rank.world->broadcast(on_device(values), 0, {.algorithm = "nccl-native"}),
                 ConfigError);
    EXPECT_EQ(copies->enqueued(), 0u);
  });
}

TEST(StagedCalls, WithoutCopiesADeviceIsRefused) {
  run_ranks(1, [](RankContext& rank) {
    std::vector<float> values(3);
    EXPECT_THROW(rank.world->all_reduce(on_device(values), ReduceOp::Sum).wait(), ConfigError);
    EXPECT_THROW(rank.world->allocate(16, kDevice), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::staged_calls_test
