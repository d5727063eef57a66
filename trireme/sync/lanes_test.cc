// Whatever the timing of the lanes, the sink gets the micro-batches in order, all gradients of one
// before the next, and the exceptions with their micro-batch.
#include "trireme/sync/lanes.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/models/module_block.h"
#include "trireme/tensor/determinism.h"
#include "trireme/testing/refused_threads.h"

namespace trireme::parallel::lanes_test {
namespace {

models::Blocks two_blocks() {
  models::Blocks blocks;
  for (const char* name : {"a", "b"}) blocks.add(name, [] { return torch::nn::Linear(3, 3); });
  return blocks;
}

struct LanesTest : ::testing::Test {
  LanesTest() : stage((tensor::set_up_process({}), two_blocks()), 1) {
    for (const Stage::Member& member : stage.members())
      for (const auto& parameter : member.block->parameters()) leaves.push_back(parameter.tensor);
  }
  // Computes the loss of a task; every element of its input is task + 1.
  static double compute(Stage& blocks, std::size_t task) {
    const auto value = static_cast<double>(task + 1);
    const MicroBatch micro{.index = static_cast<std::uint32_t>(task),
                           .fields = {{"tokens", at::full({2, 3}, value, at::kFloat)}}};
    const at::Tensor loss = blocks.forward(micro, 0).at(0).sum();
    loss.backward();
    return loss.item<double>();
  }
  // A sink that records its calls and checks the number of gradients per task.
  Lanes::Sink recording() {
    return {.begin = [this](std::size_t task) { seen += "begin " + std::to_string(task) + "\n"; },
            .gradient =
                [this](std::size_t leaf, const at::Tensor& gradient) {
                  EXPECT_EQ(gradient.sizes(), leaves[leaf].sizes());
                  sums[leaf] += gradient.sum().item<double>();
                  ++gradients;
                },
            .end =
                [this](std::size_t task, double value, const std::exception_ptr& error) {
                  seen += "end " + std::to_string(task) + (error ? " failed" : "") + "\n";
                  EXPECT_EQ(gradients, error ? 0 : 4);
                  gradients = 0;
                  values.push_back(value);
                }};
  }
  Stage stage;
  std::vector<at::Tensor> leaves;
  std::shared_ptr<Waiter> waiter = RealWaiter::make();
  std::string seen;
  std::vector<double> values;
  std::map<std::size_t, double> sums;
  int gradients = 0;
};

TEST_F(LanesTest, HandOverInOrderWhateverTheirNumber) {
  std::vector<double> alone;
  std::map<std::size_t, double> sums_alone;
  for (int count : {1, 2, 4}) {
    Lanes lanes(two_blocks(), 2, leaves, {.count = count},
                waiter);  // another seed: weights alias `leaves`
    EXPECT_EQ(lanes.count(), count);
    for (std::size_t tasks : {0, 1, 7}) {
      seen.clear(), values.clear(), sums.clear();
      lanes.run(tasks, compute, recording());
      std::string wanted;
      for (std::size_t i = 0; i < tasks; ++i)
        wanted += "begin " + std::to_string(i) + "\nend " + std::to_string(i) + "\n";
      EXPECT_EQ(seen, wanted);
    }
    if (alone.empty()) alone = values, sums_alone = sums;
    EXPECT_EQ(values, alone);
    EXPECT_EQ(sums, sums_alone);
  }
}

// The last lane would take the gradients of all.
TEST_F(LanesTest, RefuseAFactoryThatReturnsTheSameModuleEachTime) {
  models::Blocks blocks;
  const torch::nn::Linear same(3, 3);
  blocks.add("same", [same] { return same; });
  const std::vector<at::Tensor> own = {at::rand({3, 3}), at::rand({3})};
  EXPECT_NO_THROW(Lanes(blocks, 1, own, {.count = 1}, waiter));
  EXPECT_THROW(Lanes(blocks, 1, own, {.count = 2}, waiter), ConfigError);
}

TEST_F(LanesTest, ShareTheRanksFrozenWeights) {
  models::Blocks blocks;
  blocks.add("a", [] {
    torch::nn::Linear frozen(3, 3);
    frozen->weight.requires_grad_(false);
    return frozen;
  });
  const at::Tensor weight = at::rand({3, 3}), bias = at::rand({3}).set_requires_grad(true);
  const Lanes lanes(blocks, 1, {bias}, {.count = 2, .frozen = {weight}}, waiter);
  for (const int lane : {0, 1})
    EXPECT_EQ(lanes.stage(lane).members().front().block->buffers().front().tensor.data_ptr(),
              weight.data_ptr());
}

TEST_F(LanesTest, AThreadThatTheSystemRefusesIsAnError) {
  const testing::RefusedThreads one_thread(1);
  EXPECT_THROW(Lanes(two_blocks(), 1, leaves, {.count = 3}, waiter), std::system_error);
}

TEST_F(LanesTest, RunSideBySide) {
  Lanes lanes(two_blocks(), 1, leaves, {.count = 2}, waiter);
  std::atomic<int> inside{0};
  // Each task waits for the other, so running them one after the other would not end.
  const auto together = [&](Stage& blocks, std::size_t task) {
    ++inside;
    while (inside < 2) std::this_thread::yield();
    return compute(blocks, task);
  };
  lanes.run(2, together, recording());
  EXPECT_EQ(values.size(), 2u);
}

// A lane that looks for work just as a run begins must not take a task that another lane has.
TEST_F(LanesTest, ComputeEachTaskOnceHoweverOftenARunBegins) {
  Lanes lanes(two_blocks(), 1, leaves, {.count = 4}, waiter);
  std::size_t ended = 0;
  const Lanes::Sink sink{.end = [&](std::size_t, double, const std::exception_ptr&) { ++ended; }};
  for (int run = 0; run < 20'000; ++run) {
    std::atomic<int> computed{0};
    lanes.run(
        3, [&](Stage&, std::size_t) -> double { return ++computed; }, sink);
    ASSERT_EQ(computed, 3) << "in run " << run;
  }
  EXPECT_EQ(ended, 60'000u);
}

TEST_F(LanesTest, AFailedMicroBatchReachesTheSinkAndTheOthersGoOn) {
  Lanes lanes(two_blocks(), 1, leaves, {.count = 2}, waiter);
  const auto failing = [](Stage& blocks, std::size_t task) {
    if (task == 1) throw std::runtime_error("no");
    return compute(blocks, task);
  };
  lanes.run(3, failing, recording());
  EXPECT_EQ(seen, "begin 0\nend 0\nbegin 1\nend 1 failed\nbegin 2\nend 2\n");
}

TEST_F(LanesTest, AnExceptionOfTheSinkComesOutAndTheLanesStayUsable) {
  Lanes lanes(two_blocks(), 1, leaves, {.count = 2}, waiter);
  Lanes::Sink sink = recording();
  sink.end = [](std::size_t, double, const std::exception_ptr&) {
    throw std::runtime_error("full");
  };
  EXPECT_THROW(lanes.run(5, compute, sink), std::runtime_error);
  gradients = 0, seen.clear();
  lanes.run(2, compute, recording());
  EXPECT_EQ(seen, "begin 0\nend 0\nbegin 1\nend 1\n");
}

// A Waiter may call `ready` again after it returned true (RealWaiter does, just before sleeping).
class AsksTwice final : public Waiter {
 public:
  TimePoint now() const noexcept override { return real_->now(); }
  bool spins() const noexcept override { return real_->spins(); }
  bool wait_until(const std::function<bool()>& ready, TimePoint deadline) override {
    bool result = false;
    do {
      result = real_->wait_until(ready, deadline) && ready();
    } while (!result && now() < deadline);
    return result;
  }
  void wake() noexcept override { real_->wake(); }
  void run(std::function<void()> task) override { real_->run(std::move(task)); }
  bool try_run(const std::function<void()>& task) override { return real_->try_run(task); }
  void run_at(TimePoint time, std::function<void()> task) override {
    real_->run_at(time, std::move(task));
  }
  void add(std::shared_ptr<ProgressSource> source) override { real_->add(std::move(source)); }
  void remove(const ProgressSource* source) override { real_->remove(source); }

 private:
  std::shared_ptr<Waiter> real_ = RealWaiter::make();
};

TEST_F(LanesTest, LoseNoGradientToAWaiterThatAsksTwice) {
  waiter = std::make_shared<AsksTwice>();
  Lanes lanes(two_blocks(), 1, leaves, {.count = 2}, waiter);
  for (int run = 0; run < 100; ++run) lanes.run(4, compute, recording());  // counts gradients
  EXPECT_EQ(values.size(), 400u);
}

}  // namespace
}  // namespace trireme::parallel::lanes_test
