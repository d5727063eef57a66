// Several DataParallels in one loop, on simulated ranks: a generator and its discriminator, an encoder
// and its decoder. On any number of ranks they end with the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/input/loader_sampler.h"
#include "trireme/job/job.h"
#include "trireme/net/sim/sim_network.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/tensor/random.h"
#include "trireme/train/elastic_cluster_test.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;

struct Setting {
  std::int64_t samples = 24, batch = 8, micro = 2;
  int epochs = 3;
  double dropout = 0.3;
  bool in_turn = false;
  DataParallelOptions options = {.bucket_bytes = 64};
  DataParallelOptions of_second = options;
};

at::Tensor rows_of(const std::vector<std::size_t>& samples) {
  const auto rows = static_cast<std::int64_t>(samples.size());
  at::Tensor all = at::empty({rows, 3}, at::kFloat);
  for (std::int64_t i = 0; i < rows; ++i)
    tensor::fill_normal(all[i], 7, std::to_string(samples[static_cast<std::size_t>(i)]), 0, 1);
  return all;
}

Sequential net_of(std::int64_t from, std::int64_t to, double dropout, std::uint64_t seed) {
  Sequential net(Linear(from, 6), torch::nn::Tanh(), torch::nn::Dropout(dropout), Linear(6, to));
  for (auto& item : net->named_parameters())
    tensor::fill_normal(item.value().detach(), seed, item.key(), 0, 0.5);
  return net;
}

at::Tensor ones_or_zeros(const at::Tensor& scores, bool real) {
  return torch::nn::functional::binary_cross_entropy_with_logits(
      scores, real ? at::ones_like(scores) : at::zeros_like(scores));
}

// A DataParallel takes the seed of the generator, which simulated ranks share.
Job& seeded(Job& job) {
  at::manual_seed(5);
  return job;
}

// A generator and its discriminator with their optimizers, in a loop of their own.
struct Adversaries {
  Adversaries(Job& own_job, const Setting& own_setting)
      : job(own_job),
        setting(own_setting),
        sampler(job, setting.samples, {.batch = setting.batch}) {}

  at::Tensor real() { return rows_of(*samples); }
  at::Tensor fake() {
    return generator->forward(at::randn({static_cast<long>(samples->size()), 2}));
  }
  bool next() {
    samples = sampler.next(static_cast<std::size_t>(setting.micro));
    if (samples) fakes = fake();
    return samples.has_value();
  }
  at::Tensor judgement() {
    return ones_or_zeros(discriminator->forward(real()), true) +
           ones_or_zeros(discriminator->forward(fakes.detach()), false);
  }
  at::Tensor forgery() { return ones_or_zeros(discriminator->forward(fakes), true); }
  // Neither loss is of weights that the other's step() has changed, which it does in the middle of a
  // batch on some ranks. Draws random numbers first, before ranks that share the generator take turns.
  void both(const std::function<void()>& between = [] {}) {
    const at::Tensor of_judges = judgement(), of_forges = forgery();
    judges.backward(of_judges);
    forges.backward(of_forges);
    const bool judged = judges.step();
    between();
    EXPECT_EQ(forges.step(), judged);
  }
  void in_turn() {
    judges.backward(judgement());
    judges.step();
    forges.backward(forgery());
    forges.step();
  }
  void epochs() {
    for (int epoch = 0; epoch < setting.epochs; ++epoch) {
      sampler.reset();
      while (next()) setting.in_turn ? in_turn() : both();
    }
  }
  std::string hash() { return judges.weights_hash() + " " + forges.weights_hash(); }

  Job& job;
  const Setting setting;
  Sampler sampler;
  std::optional<std::vector<std::size_t>> samples;
  at::Tensor fakes;
  Sequential discriminator = net_of(3, 1, setting.dropout, 1);
  Sequential generator = net_of(2, 3, setting.dropout, 2);
  torch::optim::Adam of_discriminator{discriminator->parameters(), 1e-2};
  torch::optim::Adam of_generator{generator->parameters(), 1e-2};
  DataParallel judges{seeded(job), *discriminator, of_discriminator, setting.options};
  DataParallel forges{seeded(job), *generator, of_generator, setting.of_second};
};

using Body = std::function<void(Job& job, std::string& result)>;

// The result of `body` on rank 0, or the sentence of the first rank's error.
std::string run(int ranks, const Body& body, std::uint64_t seed = 1) {
  std::vector<std::string> results(static_cast<std::size_t>(ranks));
  net::SimNetwork network(ranks, {.seed = seed});
  network.run([&](int rank) {
    std::string& mine = results[static_cast<std::size_t>(rank)];
    try {
      Job job(network.transport(rank), {}, nullptr);
      body(job, mine);
    } catch (const Error& error) {
      mine = error.what();
    }
  });
  return results.front();
}

std::string adversaries_on(int ranks, const Setting& setting, std::uint64_t seed = 1) {
  return run(
      ranks,
      [&](Job& job, std::string& result) {
        Adversaries both(job, setting);
        both.epochs();
        result = both.hash();
      },
      seed);
}

// In the last batch of an epoch some ranks have no sample.
TEST(OneLoop, AdversariesEndWithTheSameBitsOnAnyNumberOfRanks) {
  for (const std::int64_t samples : {24, 22, 18}) {
    Setting setting{.samples = samples};
    const std::string one = adversaries_on(1, setting);
    for (const char* sync : {"plain", "zero1", "zero2"}) {
      setting.options.sync = setting.of_second.sync = sync;
      for (const int ranks : {2, 3, 4})
        for (const std::uint64_t seed : {1, 2, 3})
          EXPECT_EQ(adversaries_on(ranks, setting, seed), one)
              << samples << " samples, " << sync << " on " << ranks << " ranks, seed " << seed;
    }
  }
}

TEST(OneLoop, AdversariesMayTakeTurns) {
  for (const int ranks : {2, 3, 4}) {
    const Setting setting{.samples = 18, .dropout = 0, .in_turn = true};
    const std::string first = adversaries_on(ranks, setting);
    EXPECT_EQ(first.size(), 129u) << first;
    for (const std::uint64_t seed : {2, 3, 4, 5})
      EXPECT_EQ(adversaries_on(ranks, setting, seed), first) << ranks << " ranks, seed " << seed;
  }
}

TEST(OneLoop, OneRankIsTheOrdinaryProgram) {
  const Setting setting{.batch = 8, .micro = 8, .dropout = 0};
  run(1, [&](Job& job, std::string&) {
    Adversaries both(job, setting);
    Sequential discriminator = net_of(3, 1, 0, 1), generator = net_of(2, 3, 0, 2);
    torch::optim::Adam judge(discriminator->parameters(), 1e-2);
    torch::optim::Adam forge(generator->parameters(), 1e-2);
    both.sampler.reset();
    while (both.next()) {
      const at::Tensor noise = both.real().narrow(1, 0, 2), fakes = generator->forward(noise);
      both.fakes = both.generator->forward(noise);
      both.in_turn();
      discriminator->zero_grad();
      (ones_or_zeros(discriminator->forward(both.real()), true) +
       ones_or_zeros(discriminator->forward(fakes.detach()), false))
          .backward();
      judge.step();
      generator->zero_grad();
      ones_or_zeros(discriminator->forward(fakes), true).backward();
      forge.step();
    }
    EXPECT_EQ(both.judges.steps(), 3);
    for (const auto& [ours, plain] :
         {std::pair(both.discriminator, discriminator), {both.generator, generator}})
      for (std::size_t i = 0; i < plain->parameters().size(); ++i)
        EXPECT_TRUE(at::allclose(ours->parameters()[i], plain->parameters()[i], 1e-6, 1e-7)) << i;
  });
}

TEST(OneLoop, OneMayLeaveOutWholeBatchesOrEpochs) {
  const Setting setting;
  const auto trained = [&](int ranks) {
    return run(ranks, [&](Job& job, std::string& result) {
      Adversaries both(job, setting);
      for (int epoch = 0; epoch < 4; ++epoch) {
        both.sampler.reset();
        int batch = 0;
        while (both.next()) {
          // The generator learns in the last two epochs, from each second batch.
          const bool forges = epoch > 1 && batch % 2 == 1;
          const at::Tensor of_judges = both.judgement(), of_forges = both.forgery();
          both.judges.backward(of_judges);
          if (forges) both.forges.backward(of_forges);
          batch += both.judges.step() ? 1 : 0;
          if (forges) both.forges.step();
        }
      }
      EXPECT_EQ(both.judges.steps(), 12);
      EXPECT_EQ(both.forges.steps(), 2);
      result = both.hash();
    });
  };
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(trained(ranks), trained(1)) << ranks;
}

// Both get their gradients from one backward pass.
TEST(OneLoop, AnEncoderAndItsDecoderLearnFromOneLoss) {
  const auto trained = [](int ranks) {
    return run(ranks, [&](Job& job, std::string& result) {
      Sampler sampler(job, 18, {.batch = 8});
      Sequential encoder = net_of(3, 2, 0.3, 1), decoder = net_of(2, 3, 0.3, 2);
      torch::optim::Adam of_encoder(encoder->parameters(), 1e-2);
      torch::optim::Adam of_decoder(decoder->parameters(), 1e-3);
      DataParallel encodes(seeded(job), *encoder, of_encoder);
      DataParallel decodes(seeded(job), *decoder, of_decoder);
      for (int epoch = 0; epoch < 2; ++epoch) {
        sampler.reset();
        while (const auto samples = sampler.next(2)) {
          const at::Tensor rows = rows_of(*samples);
          (decoder->forward(encoder->forward(rows)) - rows).pow(2).mean().backward();
          EXPECT_EQ(encodes.step(), decodes.step());
        }
      }
      EXPECT_EQ(encodes.steps(), 6);
      result = encodes.weights_hash() + " " + decodes.weights_hash();
    });
  };
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(trained(ranks), trained(1)) << ranks;
}

TEST(OneLoop, GoesOnFromACheckpointWithTheSameBits) {
  const fs::path place =
      fs::path(::testing::TempDir()) / ("one_loop_" + std::to_string(::getpid()));
  const Setting setting{.samples = 18};
  // Ends after `steps`, if that is not 0.
  const auto trained = [&](int ranks, long steps) {
    return run(ranks, [&](Job& job, std::string& result) {
      Adversaries both(job, setting);
      Checkpointer checkpointer(job, place.string(), {.every = 1});
      checkpointer.add("judges", both.judges).add("forges", both.forges).add("data", both.sampler);
      checkpointer.resume();
      while (both.judges.steps() < 9 && (steps == 0 || both.judges.steps() < steps)) {
        both.sampler.reset();
        while (both.next()) {
          const long before = both.forges.steps();
          both.both();
          if (both.forges.steps() > before) checkpointer.after(both.forges.steps() - 1);
          if (both.forges.steps() == steps) break;
        }
      }
      result = both.hash();
    });
  };
  const std::string whole = trained(1, 0);
  for (const int ranks : {1, 2, 4}) {
    fs::remove_all(place);
    EXPECT_NE(trained(3, 4), whole);
    EXPECT_EQ(trained(ranks, 0), whole) << ranks;
  }
  fs::remove_all(place);
}

// A rank may be lost after the discriminator's step and before the generator's: the state in memory is
// then that of no step, and is not taken for one.
TEST(OneLoop, ElasticAdversariesEndWithTheSameBits) {
  const Setting setting{.dropout = 0};
  const auto trained = [&](Job& job, const std::function<void()>& at_step,
                           const std::function<void(long steps)>& between) {
    std::string hash;
    run_elastic(job, [&] {
      Adversaries both(job, setting);
      Checkpointer checkpointer(job, ::testing::TempDir() + "none-" + std::to_string(::getpid()),
                                {.every = 0, .lock = false});
      checkpointer.add("judges", both.judges).add("forges", both.forges).add("data", both.sampler);
      if (job.changes().epoch().number > 0) checkpointer.resume();
      while (both.forges.steps() < 12) {
        both.sampler.reset();
        while (both.forges.steps() < 12 && both.next()) {
          at_step();
          const long before = both.forges.steps();
          both.both([&] { between(both.judges.steps()); });
          if (both.forges.steps() > before) checkpointer.after(both.forges.steps() - 1);
        }
      }
      hash = both.hash();
      return 0;
    });
    return hash;
  };
  std::string expected;
  train_test::ElasticCluster alone({.options = {.min = 1, .max = 1}});
  alone.run([&](Job& job, const auto& at_step) { expected = trained(job, at_step, [](long) {}); });
  int deaths = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    train_test::ElasticCluster cluster(
        {.options = {.min = 1, .max = 3, .silence = std::chrono::milliseconds(20)},
         .ranks = 3,
         .network = {.seed = seed},
         .kills = seed <= 10 ? 0 : 3});
    int ended = 0;
    cluster.run([&](Job& job, const auto& at_step) {
      const bool dies =
          job.changes().epoch().number == 0 && job.rank() == static_cast<int>(seed % 3);
      const auto between = [&](long steps) {
        if (dies && seed <= 10 && steps == 5) throw std::runtime_error("killed");
      };
      EXPECT_EQ(trained(job, at_step, between), expected) << "seed " << seed;
      ++ended;
    });
    EXPECT_GE(ended, 1) << "seed " << seed << ": " << cluster.trouble();
    deaths += cluster.deaths();
  }
  EXPECT_GT(deaths, 20);
}

TEST(OneLoop, GradientsOfAnothersLossAreRefusedUnlessItsBackwardIsCalled) {
  for (const int ranks : {1, 2})
    EXPECT_THAT(run(ranks,
                    [](Job& job, std::string&) {
                      Adversaries both(job, {});
                      both.sampler.reset();
                      while (both.next()) {
                        both.judges.backward(both.judgement());
                        both.judges.step();
                        ones_or_zeros(both.discriminator->forward(both.fakes), true).backward();
                        both.forges.step();
                      }
                    }),
                HasSubstr("DataParallel's if several train"));
}

TEST(OneLoop, WhatIsNoCommonLoopIsRefused) {
  const auto refusal = [](const std::function<void(Adversaries&)>& loop, const Setting& setting) {
    return run(2, [&](Job& job, std::string& result) {
      Adversaries both(job, setting);
      both.sampler.reset();
      loop(both);
      result = "nothing was thrown";
    });
  };
  EXPECT_THAT(refusal(
                  [](Adversaries& both) {
                    while (both.next()) {
                      both.judges.backward(both.judgement());
                      if (!both.judges.step()) continue;
                      both.forges.backward(both.forgery());
                      both.forges.step();
                    }
                  },
                  {}),
              HasSubstr("that this one left out"));
  EXPECT_THAT(refusal([](Adversaries& both) { both.epochs(); }, {.of_second = {.sync = "zero2"}}),
              HasSubstr("have different shares of a batch"));
  EXPECT_THAT(refusal([](Adversaries&) {}, {.of_second = {.sync = "server"}}),
              HasSubstr("a second DataParallel cannot use parameter servers"));
}

}  // namespace
}  // namespace trireme
