// Forward passes that ranks run together: the ranks compare their shares first, and an error on one
// rank ends the pass on all ranks at once.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/job/job.h"
#include "trireme/models/module_block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/pipeline_training_test.h"

namespace trireme::evaluation_test {
namespace {

using namespace parallel::test;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A rank's Strategy and the assignment of its micro-batches.
struct Rank {
  Rank(testing::RankContext& context, StrategyOptions options, const models::Blocks& model = mlp())
      : context(context) {
    parallel::StrategyContext env{.world = context.world.get()};
    env.assign = [this](const kernel::Assignment& dealt) { assignment = dealt; };
    env.stop_signal = [this] { return asked(); };
    env.note_stop = [this](int signal) { noted = signal; };
    options.bucket_bytes = 2048;
    strategy = std::make_unique<Strategy>(env, model, std::move(options),
                                          optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
  }
  Batch batch(std::int64_t step, std::uint32_t total = 8) const {
    return batch_of(step, total, context.rank, assignment);
  }
  double step(int number) { return strategy->step(batch(number), squared_loss()).loss; }
  double evaluate() { return strategy->evaluate({batch(100), batch(101, 3)}, squared_loss()); }

  testing::RankContext& context;
  kernel::Assignment assignment;
  std::function<int()> asked = [] { return 0; };  // StrategyContext::stop_signal
  int noted = 0;
  std::unique_ptr<Strategy> strategy;
};

// The message that each rank's `body` throws; no rank may wait until its deadline.
std::map<int, std::string> thrown(int ranks, const StrategyOptions& options,
                                  const std::function<void(Rank&)>& body,
                                  const models::Blocks& model = mlp()) {
  std::map<int, std::string> messages;
  std::mutex mutex;
  testing::run_ranks(ranks, [&](testing::RankContext& context) {
    Rank rank(context, options, model);
    const TimePoint begin = context.waiter->now();
    std::string message = "nothing was thrown";
    try {
      body(rank);
    } catch (const std::exception& error) {
      message = error.what();
    }
    EXPECT_LT(context.waiter->now() - begin, std::chrono::seconds(10)) << message;
    const std::lock_guard lock(mutex);
    messages[context.rank] = message;
  });
  return messages;
}

struct Shape {
  int ranks = 1;
  StrategyOptions options = {};
};

const std::vector<Shape> kShapes = {{2, {}},
                                    {3, {.sync = "zero1"}},
                                    {3, {.sync = "zero2"}},
                                    {3, {.sync = "zero3"}},
                                    {4, {.sync = "hybrid", .shard = 2}},
                                    {2, {.pipeline = 2}},
                                    {3, {.pipeline = 3}},
                                    {4, {.pipeline = 2}},
                                    {4, {.sync = "zero3", .pipeline = 2}},
                                    {2, {.pipeline = 2, .schedule = "zb-v"}},
                                    {2, {.tensor = 2}},
                                    {4, {.pipeline = 2, .tensor = 2}}};

std::string name_of(const Shape& shape) {
  const StrategyOptions& o = shape.options;
  return std::to_string(shape.ranks) + " ranks, " + o.sync + ", pipeline " +
         std::to_string(o.pipeline) + " " + o.schedule + ", tensor " + std::to_string(o.tensor);
}

TEST(Evaluation, OfSharesThatAreNotTheRanksOwnIsRefusedNamingTwoRanks) {
  for (const Shape& shape : kShapes) {
    const auto messages = thrown(shape.ranks, shape.options, [](Rank& rank) {
      rank.step(0);
      // Other than the Strategy's assignment: contiguous shares, or interleaved ones.
      kernel::Assignment wrong = kernel::contiguous(rank.context.size);
      if (rank.assignment == wrong) wrong = {1, rank.context.size};
      rank.strategy->evaluate({batch_of(100, 8, rank.context.rank, wrong)}, squared_loss());
    });
    for (const auto& [rank, message] : messages)
      EXPECT_THAT(message, AllOf(HasSubstr("was given micro-batches "), HasSubstr("its share is "),
                                 HasSubstr("; rank "), HasSubstr("fixed_batches(job, data")))
          << name_of(shape) << ", rank " << rank;
  }
}

TEST(Evaluation, NamesWhatTheStagesOfOnePipelineWereGiven) {
  const auto messages = thrown(2, {.pipeline = 2}, [](Rank& rank) {
    rank.strategy->evaluate({batch_of(100, 8, rank.context.rank, kernel::contiguous(2))},
                            squared_loss());
  });
  for (const auto& [rank, message] : messages) {
    EXPECT_THAT(message,
                AllOf(HasSubstr("rank 0 was given micro-batches 0-3 of 8 in batch 0 of 1"),
                      HasSubstr("but its share is 0-7; rank 1 was given micro-batches 4-7 of 8")));
  }
}

TEST(Evaluation, OfOtherBatchesOnAnotherRankIsRefused) {
  for (const Shape& shape : kShapes) {
    const int last = shape.ranks - 1;
    const auto more = thrown(shape.ranks, shape.options, [last](Rank& rank) {
      std::vector<Batch> batches = {rank.batch(100)};
      if (rank.context.rank == last) batches.push_back(rank.batch(101));
      rank.strategy->evaluate(batches, squared_loss());
    });
    for (const auto& [rank, message] : more)
      EXPECT_THAT(message, AllOf(HasSubstr("rank 0 was given micro-batches"),
                                 HasSubstr("in batch 0 of 1 ("), HasSubstr("in batch 0 of 2 (")))
          << name_of(shape) << ", rank " << rank;
  }
  // The same micro-batch numbers with other samples.
  const auto messages = thrown(2, {.pipeline = 2}, [](Rank& rank) {
    Batch batch = rank.batch(100);
    if (rank.context.rank == 1)
      for (MicroBatch& micro : batch.micro) micro.first_sample += 64;
    rank.strategy->evaluate({batch}, squared_loss());
  });
  for (const auto& [rank, message] : messages)
    EXPECT_THAT(message, AllOf(HasSubstr("samples from 0 on"), HasSubstr("samples from 64 on")));
}

TEST(Inference, OfMicroBatchesThatDisagreeIsRefusedNamingTwoRanks) {
  for (const Shape& shape : kShapes) {
    if (shape.options.sync != "zero3" && shape.options.sync != "hybrid" &&
        shape.options.pipeline == 1 && shape.options.tensor == 1)
      continue;  // every rank infers on its own
    const int last = shape.ranks - 1;
    const auto messages = thrown(shape.ranks, shape.options, [last](Rank& rank) {
      // Another shape: the last micro-batch of an odd step has one row.
      rank.strategy->infer(micro_batch(rank.context.rank == last ? 1 : 0, 7, 8));
    });
    for (const auto& [rank, message] : messages)
      EXPECT_THAT(message, AllOf(HasSubstr("rank 0 was given a micro-batch with tokens [2, 8]"),
                                 HasSubstr("was given a micro-batch with tokens [1, 8]")))
          << name_of(shape) << ", rank " << rank;
  }
  const auto values = thrown(2, {.pipeline = 2}, [](Rank& rank) {
    rank.strategy->infer(micro_batch(rank.context.rank, 0, 8));
  });
  for (const auto& [rank, message] : values)
    EXPECT_THAT(message, HasSubstr("of one pipeline, or that share layers, the same values"));
}

TEST(Evaluation, EndsAfterTheSameBatchOnAllRanksIfOneIsAskedToStop) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(name_of(shape));
    testing::run_ranks(shape.ranks, [&](testing::RankContext& context) {
      Rank rank(context, shape.options);
      rank.step(0);
      const std::vector<Loss> losses = {squared_loss()};
      const std::vector<Batch> batches = {rank.batch(100), rank.batch(101, 3), rank.batch(102)};
      const std::vector<double> whole = rank.strategy->evaluate(batches, losses);
      EXPECT_GT(whole.at(0), 0);
      // The last rank is asked by `signal` in batch number `number`, from 1.
      const auto evaluate = [&](int signal, int number, bool until_stop = true) {
        int calls = 0;
        rank.asked = [&, signal, number] {
          return ++calls >= number && context.rank == context.size - 1 ? signal : 0;
        };
        return rank.strategy->evaluate(batches, losses, until_stop);
      };
      EXPECT_EQ(evaluate(0, 1), whole);
      EXPECT_EQ(evaluate(kRanksChange, 1), whole) << "ranks regroup after a step";
      EXPECT_EQ(evaluate(143, 3), whole) << "nothing is left to do";
      EXPECT_EQ(evaluate(143, 1, /*until_stop=*/false), whole);
      EXPECT_EQ(rank.strategy->stop_signal(), 0);
      for (const int number : {1, 2}) {
        EXPECT_TRUE(evaluate(143, number).empty());
        EXPECT_EQ(rank.strategy->stop_signal(), 143);
        EXPECT_EQ(std::exchange(rank.noted, 0), 143);
        EXPECT_EQ(evaluate(0, 1), whole);
      }
      rank.asked = [] { return 0; };
      rank.step(1);
      EXPECT_EQ(rank.strategy->stop_signal(), 0);
    });
  }
}

// The loss of micro-batch 5 throws on the rank that computes it. That rank gets the exception, the
// others fail without waiting for a deadline, and all ranks can go on.
TEST(Evaluation, AnErrorOfOneRankEndsThatOfAllRanksAtOnceAndAllGoOn) {
  for (const Shape& shape : kShapes) {
    if (shape.options.tensor > 1) continue;
    std::vector<std::string> messages(static_cast<std::size_t>(shape.ranks));
    std::vector<double> after(messages.size());
    testing::run_ranks(shape.ranks, [&](testing::RankContext& context) {
      Rank rank(context, shape.options);
      rank.step(0);
      const double before = rank.evaluate();
      const TimePoint begin = context.waiter->now();
      const Loss breaks = [&](const models::Value& output, const MicroBatch& micro) {
        if (micro.index == 5) throw std::out_of_range("label 77");
        return squared_loss()(output, micro);
      };
      const auto own = static_cast<std::size_t>(context.rank);
      try {
        rank.strategy->evaluate({rank.batch(100), rank.batch(102)}, breaks);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const std::out_of_range& error) {
        messages[own] = error.what();
      } catch (const StepRefused& error) {
        messages[own] = error.what();
      }
      EXPECT_LT(context.waiter->now() - begin, std::chrono::seconds(10));
      EXPECT_EQ(rank.evaluate(), before) << "nothing has changed";
      rank.step(1);
      after[own] = rank.evaluate();
    });
    int thrown_here = 0;
    for (const std::string& message : messages) {
      thrown_here += message == "label 77" ? 1 : 0;
      EXPECT_THAT(message, HasSubstr("label 77")) << name_of(shape);
      if (message != "label 77") {
        EXPECT_THAT(message, HasSubstr("failed in the validation")) << name_of(shape);
      }
    }
    EXPECT_EQ(thrown_here, 1) << name_of(shape);
    for (const double loss : after) EXPECT_EQ(loss, after[0]) << name_of(shape);
  }
}

// Throws on the ranks whose thread has set `breaks_now`.
thread_local bool breaks_now = false;
struct Fragile : torch::nn::Module {
  at::Tensor forward(const at::Tensor& value) {
    if (breaks_now) throw std::runtime_error("label 77");
    return value * 1;
  }
};

// The Fragile block comes first, so rank 0 has it in a pipeline. The next block reads the input.
models::Blocks fragile_model() {
  const models::Blocks whole = mlp();
  models::Blocks model;
  model.add("fragile", [] { return std::make_shared<Fragile>(); });
  for (const models::BlockSpec& spec : whole.specs()) model.add_block(spec);
  return model;
}

TEST(Evaluation, AnErrorInAnEarlierStageReachesAllRanksAtOnce) {
  for (const Shape& shape : kShapes) {
    if (shape.options.pipeline == 1 || shape.options.tensor > 1) continue;
    for (const bool infer : {false, true}) {
      const auto messages = thrown(
          shape.ranks, shape.options,
          [&](Rank& rank) {
            rank.step(0);
            const double before = rank.evaluate();
            breaks_now = rank.context.rank == 0;
            std::string message;
            try {
              infer ? (void)rank.strategy->infer(micro_batch(0, 0, 8)) : (void)rank.evaluate();
            } catch (const std::exception& error) {
              message = error.what();
            }
            breaks_now = false;
            EXPECT_EQ(rank.evaluate(), before);
            if (!message.empty()) throw std::runtime_error(message);
          },
          fragile_model());
      for (const auto& [rank, message] : messages) {
        EXPECT_THAT(message, HasSubstr("label 77")) << name_of(shape) << ", rank " << rank;
        if (rank > 0) {
          EXPECT_THAT(message, HasSubstr("rank 0 failed in the ")) << name_of(shape);
        }
      }
    }
  }
}

// The ranks are inside a layer, so the job's communicators are aborted.
TEST(Evaluation, RanksThatShareLayersHearOfAnErrorAtOnce) {
  for (const Shape& shape : kShapes) {
    if (shape.options.tensor == 1) continue;
    for (const char* call : {"evaluate", "infer", "step"}) {
      const auto messages = thrown(
          shape.ranks, shape.options,
          [&](Rank& rank) {
            rank.step(0);
            breaks_now = rank.context.rank == 0;
            if (call == std::string("evaluate")) rank.evaluate();
            if (call == std::string("infer")) rank.strategy->infer(micro_batch(0, 0, 8));
            if (call == std::string("step")) rank.step(1);
          },
          fragile_model());
      breaks_now = false;
      EXPECT_EQ(messages.at(0), "label 77") << call << ", " << name_of(shape);
      for (const auto& [rank, message] : messages)
        EXPECT_NE(message, "nothing was thrown")
            << call << ", " << name_of(shape) << ", rank " << rank;
    }
  }
}

}  // namespace
}  // namespace trireme::evaluation_test
