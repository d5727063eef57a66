#include "trireme/sync/compression/compressor.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/simulate.h"
#include "trireme/sync/compression/compression_state.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::inline v0::parallel {
namespace {

using ::testing::HasSubstr;
using testing::RankContext;
using testing::run_ranks;
using ::testing::ThrowsMessage;

constexpr std::int64_t kRows = 96, kColumns = 64, kVector = 80;

// One bucket: a matrix, a gap to the next 64 bytes (there is none here), a vector.
std::vector<BucketShape> one_bucket() {
  return {{kRows * kColumns + kVector,
           {{"matrix", 0, kRows * kColumns, kRows}, {"vector", kRows * kColumns, kVector, 1}}}};
}

at::Tensor gradient(int rank, int step = 0) {
  at::Tensor values = at::empty({kRows * kColumns + kVector}, at::kFloat);
  tensor::fill_normal(values, 11, std::to_string(rank) + "/" + std::to_string(step), 0, 1);
  return values;
}

at::Tensor sum_of_gradients(int size, int step = 0) {
  at::Tensor sum = gradient(0, step).to(at::kDouble);
  for (int rank = 1; rank < size; ++rank) sum += gradient(rank, step).to(at::kDouble);
  return sum;
}

double relative(const at::Tensor& value, const at::Tensor& reference) {
  return (value.to(at::kDouble) - reference).norm().item<double>() /
         reference.norm().item<double>();
}

at::Tensor reduce(Compressor& compressor, at::Tensor local) {
  compressor.launch(0, local);
  compressor.finish();
  return local;
}

// Runs `body` on `size` ranks and expects the same tensor, bit for bit, from all of them.
at::Tensor same_everywhere(int size, const std::function<at::Tensor(RankContext&)>& body) {
  std::vector<at::Tensor> results(static_cast<std::size_t>(size));
  run_ranks(size, [&](RankContext& rank) { results[rank.rank] = body(rank); });
  for (const at::Tensor& one : results) EXPECT_TRUE(one.equal(results[0]));
  return results[0];
}

TEST(Compressor, SixteenBitsRoundTheSum) {
  for (const auto& [spec, bound] : {std::pair("bf16", 8e-3), {"f16", 1e-3}}) {
    for (int size : {2, 3, 5}) {
      const at::Tensor sum = same_everywhere(size, [&](RankContext& rank) {
        const auto compressor = make_compressor(spec, *rank.world, one_bucket(), 1);
        const at::Tensor result = reduce(*compressor, gradient(rank.rank));
        EXPECT_EQ(compressor->payload_bytes(), 2 * result.numel());
        return result;
      });
      EXPECT_LT(relative(sum, sum_of_gradients(size)), bound) << spec;
      EXPECT_GT(relative(sum, sum_of_gradients(size)), bound / 100) << spec;  // it did round
    }
  }
}

// With error feedback everything arrives later: after T steps with one gradient the outputs add up
// to T times it, except for one residual.
TEST(Compressor, WhatIsLeftOutComesLater) {
  constexpr int kSteps = 400;
  for (const auto& [spec, bound] : {std::pair("topk:0.05", 0.06),
                                    {"randomk:0.1", 0.06},
                                    {"onebit", 0.06},
                                    {"powersgd:4,0", 0.1}}) {
    for (int size : {2, 3}) {
      const at::Tensor total = same_everywhere(size, [&](RankContext& rank) {
        const auto compressor = make_compressor(spec, *rank.world, one_bucket(), 1);
        at::Tensor sum = at::zeros({kRows * kColumns + kVector}, at::kDouble);
        const at::Tensor first = reduce(*compressor, gradient(rank.rank));
        EXPECT_GT(relative(first, sum_of_gradients(size)), 0.1) << spec << " left nothing out";
        sum += first;
        for (int step = 1; step < kSteps; ++step) {
          sum += reduce(*compressor, gradient(rank.rank));
        }
        return sum;
      });
      EXPECT_LT(relative(total / kSteps, sum_of_gradients(size)), bound) << spec << " on " << size;
    }
  }
}

TEST(Compressor, PayloadsAreAsSmallAsStated) {
  const std::int64_t count = kRows * kColumns + kVector;
  const auto payload = [&](const char* spec) {
    std::int64_t bytes = 0;
    run_ranks(2, [&](RankContext& rank) {
      const auto compressor = make_compressor(spec, *rank.world, one_bucket(), 1);
      reduce(*compressor, gradient(rank.rank));
      if (rank.rank == 0) bytes = compressor->payload_bytes();
    });
    return bytes;
  };
  EXPECT_EQ(payload("topk:0.01"), (count + 50) / 100 * 8);
  EXPECT_EQ(payload("randomk:0.01"), (count + 50) / 100 * 4);
  EXPECT_EQ(payload("randomk:0.5"), count / 2 * 4);
  EXPECT_EQ(payload("onebit"), (count + 4095) / 4096 * 520);
  EXPECT_EQ(payload("powersgd:2,0"), ((kRows + kColumns) * 2 + kVector) * 4);
}

TEST(Compressor, AllElementsAreTheSum) {
  for (const char* spec : {"topk:1", "randomk:1"}) {
    const at::Tensor sum = same_everywhere(3, [&](RankContext& rank) {
      const auto compressor = make_compressor(spec, *rank.world, one_bucket(), 1);
      return reduce(*compressor, gradient(rank.rank));
    });
    EXPECT_LT(relative(sum, sum_of_gradients(3)), 1e-6) << spec;
  }
}

// Subspace iteration is exact if the sum has that rank: after the second step at the latest.
TEST(Compressor, PowerIsExactForASumOfItsRank) {
  const at::Tensor u = gradient(7).narrow(0, 0, kRows), v = gradient(8).narrow(0, 0, kColumns);
  const at::Tensor expected = at::outer(u, v).flatten() * 3.0;  // 1 + 2
  same_everywhere(2, [&](RankContext& rank) {
    const auto compressor = make_compressor("powersgd:1,0", *rank.world, one_bucket(), 1);
    at::Tensor result;
    for (int step = 0; step < 2; ++step) {
      at::Tensor local = at::ones({kRows * kColumns + kVector}, at::kFloat);
      local.narrow(0, 0, kRows * kColumns).copy_(at::outer(u, v).flatten() * (rank.rank + 1.0));
      result = reduce(*compressor, local);
      EXPECT_LT(relative(result.narrow(0, 0, kRows * kColumns), expected.to(at::kDouble)), 1e-4);
    }
    EXPECT_TRUE(result.narrow(0, kRows * kColumns, kVector).equal(at::full({kVector}, 2.0f)));
    return result;
  });
}

// By default for 1,000 steps, as in PyTorch's hook.
TEST(Compressor, PowerStartsWithWholeGradients) {
  const std::int64_t whole = (kRows * kColumns + kVector) * 4;
  const std::int64_t thin = ((kRows + kColumns) * 2 + kVector) * 4;
  for (const auto& [spec, steps] : {std::pair("powersgd:2", 1000), {"powersgd:2,3", 3}}) {
    run_ranks(2, [&, spec = spec, steps = steps](RankContext& rank) {
      const auto compressor = make_compressor(spec, *rank.world, one_bucket(), 1);
      const at::Tensor local = gradient(rank.rank);
      for (int step = 0; step < steps; ++step) {
        const at::Tensor sum = reduce(*compressor, local.clone());
        if (step == 0) {
          EXPECT_LT(relative(sum, sum_of_gradients(2)), 1e-6) << spec;
        }
      }
      EXPECT_EQ(compressor->payload_bytes(), steps * whole) << spec;
      reduce(*compressor, local.clone());
      EXPECT_EQ(compressor->payload_bytes(), steps * whole + thin) << spec;
    });
  }
}

// After a gradient that is zero for some steps (an unused layer) the matrix must be sent again.
TEST(Compressor, PowerWakesUpAfterZeros) {
  same_everywhere(2, [&](RankContext& rank) {
    const auto compressor = make_compressor("powersgd:2,0", *rank.world, one_bucket(), 1);
    reduce(*compressor, at::zeros({kRows * kColumns + kVector}, at::kFloat));
    const at::Tensor result = reduce(*compressor, gradient(rank.rank));
    EXPECT_GT(result.narrow(0, 0, kRows * kColumns).norm().item<double>(), 1);
    return result;
  });
}

// At some size the gradients and P are finite, and Q is not.
TEST(Compressor, PowerGoesOnAfterNumbersThatAreTooLarge) {
  for (float size = 1e36F; size < 1e38F; size *= 1.3F) {
    same_everywhere(3, [&](RankContext& rank) {
      const auto compressor = make_compressor("powersgd:1,0", *rank.world, one_bucket(), 1);
      reduce(*compressor, at::full({kRows * kColumns + kVector}, size));
      compressor->drop();
      const at::Tensor result = reduce(*compressor, gradient(rank.rank));
      EXPECT_TRUE(result.isfinite().all().item<bool>()) << size;
      return result;
    });
  }
}

TEST(Compressor, ARefusedStepLeavesNothing) {
  for (const char* spec : {"topk:0.05", "randomk:0.05", "onebit", "powersgd:2,0"}) {
    same_everywhere(2, [&](RankContext& rank) {
      const auto compressor = make_compressor(spec, *rank.world, one_bucket(), 1);
      at::Tensor poisoned = gradient(rank.rank);
      if (rank.rank == 1) poisoned.fill_(std::numeric_limits<float>::quiet_NaN());
      reduce(*compressor, poisoned);
      compressor->drop();
      const at::Tensor zero =
          reduce(*compressor, at::zeros({kRows * kColumns + kVector}, at::kFloat));
      EXPECT_EQ(zero.abs().max().item<float>(), 0) << spec;
      return zero;
    });
  }
}

constexpr std::array kLossy = {"topk:0.1",     "randomk:0.1",  "onebit",
                               "powersgd:2,0", "powersgd:2,2", "powersgd:2,9"};

// A matrix of 9 x 7 and a vector of 5, each before a gap.
std::vector<BucketShape> bucket_with_gaps() {
  return {{80, {{"matrix", 0, 63, 9}, {"vector", 64, 5, 1}}}};
}

// `gap`: what was left in the gaps.
at::Tensor one_step(Compressor& compressor, int rank, int step, double gap = 0) {
  at::Tensor local = gradient(rank, step).narrow(0, 0, 80).clone();
  local.narrow(0, 63, 1).fill_(gap);
  local.narrow(0, 69, 11).fill_(gap);
  reduce(compressor, local);
  compressor.accept();
  return at::cat({local.narrow(0, 0, 63), local.narrow(0, 64, 5)});
}

// Four steps, and four in another process that goes on from the state of the first.
TEST(Compressor, GoesOnFromItsStateWithEqualBits) {
  for (const char* spec : kLossy) {
    for (int size : {2, 3}) {
      same_everywhere(size, [&](RankContext& rank) {
        const auto make = [&] { return make_compressor(spec, *rank.world, bucket_with_gaps(), 1); };
        const auto straight = make(), resumed = make();
        for (int step = 0; step < 4; ++step) one_step(*straight, rank.rank, step);
        const auto saved = straight->state(), fresh = resumed->state();
        EXPECT_EQ(saved.size(), fresh.size());
        for (std::size_t i = 0; i < saved.size(); ++i) {
          EXPECT_EQ(saved[i].name, fresh[i].name);
          EXPECT_TRUE(saved[i].name.starts_with(kCompressionPrefix));
          at::Tensor(fresh[i].local).copy_(saved[i].local);
        }
        resumed->restored(straight->steps());
        at::Tensor sum;
        for (int step = 4; step < 8; ++step) {
          sum = one_step(*straight, rank.rank, step);
          EXPECT_TRUE(one_step(*resumed, rank.rank, step, 9).equal(sum))
              << spec << ", step " << step;
        }
        return sum;
      });
    }
  }
}

TEST(Compressor, EachRankHasARowOfTheResidual) {
  run_ranks(3, [](RankContext& rank) {
    const auto compressor = make_compressor("onebit", *rank.world, bucket_with_gaps(), 1);
    one_step(*compressor, rank.rank, 0);
    const auto state = compressor->state();
    ASSERT_EQ(state.size(), 2u);
    EXPECT_EQ(state[0].name, "compression/residual/matrix");
    EXPECT_EQ(state[0].shape, (std::vector<std::int64_t>{3, 63}));
    EXPECT_EQ(state[0].begin, rank.rank * 63);
    EXPECT_EQ(state[0].end, (rank.rank + 1) * 63);
    EXPECT_TRUE(state[0].row_of_rank);
    EXPECT_GT(state[0].local.abs().max().item<float>(), 0);
  });
}

// Another compressor's residual is sent, also in steps that are not compressed.
TEST(Compressor, SendsTheResidualOfAnother) {
  for (const char* spec : {"topk:1", "randomk:1", "powersgd:2,1"}) {
    const at::Tensor sum = same_everywhere(2, [&](RankContext& rank) {
      const auto before = make_compressor("topk:0.1", *rank.world, one_bucket(), 1),
                 after = make_compressor(spec, *rank.world, one_bucket(), 1);
      const at::Tensor sent = reduce(*before, gradient(rank.rank));
      const auto saved = before->state(), fresh = after->state();
      for (std::size_t i = 0; i < saved.size(); ++i)
        at::Tensor(fresh[i].local).copy_(saved[i].local);
      const at::Tensor zeros = at::zeros({kRows * kColumns + kVector}, at::kFloat);
      return sent + reduce(*after, zeros);
    });
    EXPECT_LT(relative(sum, sum_of_gradients(2)), 1e-6) << spec;
  }
}

TEST(CompressionState, HasNothingInTheMiddleOfAStep) {
  run_ranks(2, [](RankContext& rank) {
    const auto compressor = make_compressor("powersgd:2,0", *rank.world, bucket_with_gaps(), 1);
    const CompressionState state("powersgd:2,0", {compressor.get()}, false);
    const auto elements = [&] {
      std::int64_t sum = 0;
      for (const NamedShard& shard : state.shards()) {
        EXPECT_EQ(shard.local.numel(), shard.end - shard.begin);
        sum += shard.local.numel();
      }
      return sum;
    };
    const std::int64_t all = 63 + 5 + 7 * 2;
    EXPECT_EQ(elements(), all);
    compressor->launch(0, gradient(rank.rank).narrow(0, 0, 80).clone());
    EXPECT_EQ(elements(), 0);
    compressor->finish();
    EXPECT_EQ(elements(), 0) << "the ranks have not voted yet";
    compressor->accept();
    EXPECT_EQ(elements(), all);
    one_step(*compressor, rank.rank, 1);
    compressor->drop();
    EXPECT_EQ(elements(), all);
  });
}

// The sentence is for people: once, and only if something is other than it was.
TEST(CompressionState, SaysWithWhatItGoesOn) {
  run_ranks(2, [](RankContext& rank) {
    const auto said = [&](const std::string& spec, const nlohmann::json& saved) {
      const auto compressor = make_compressor(spec, *rank.world, bucket_with_gaps(), 1);
      std::vector<Compressor*> all;
      if (compressor) all.push_back(compressor.get());
      CompressionState state(spec, all, rank.rank == 0);
      state.restored(saved);
      if (rank.rank != 0) return std::string();
      ::testing::internal::CaptureStderr();
      state.say();
      state.say();
      return ::testing::internal::GetCapturedStderr();
    };
    const auto saved = [](const char* spec, int ranks) {
      return nlohmann::json{{"compression", {{"spec", spec}, {"ranks", ranks}, {"steps", 7}}}};
    };
    const std::string same = said("topk:0.1", saved("topk:0.1", 2)),
                      more = said("topk:0.1", saved("topk:0.1", 3)),
                      old = said("topk:0.1", nlohmann::json::object()),
                      none = said("none", saved("topk:0.1", 3)),
                      neither = said("bf16", nlohmann::json::object());
    if (rank.rank != 0) return;
    EXPECT_EQ(same, "");
    EXPECT_EQ(neither, "");
    EXPECT_EQ(more,
              "what 3 ranks had not sent of their gradients (comm.compression = \"topk:0.1\") is "
              "divided among 2 ranks: the weights will not be those of a run that stays on 3 "
              "ranks\n");
    EXPECT_EQ(old,
              "there is no earlier state of comm.compression = \"topk:0.1\", which begins anew\n");
    EXPECT_EQ(none,
              "what 3 ranks had not sent of their gradients (comm.compression = \"topk:0.1\") is "
              "left out: this job sends all\n");
  });
}

TEST(Compressor, AutoCompressesWhereTheLinkIsSlow) {
  const auto chosen = [](double bytes_per_second) {
    bool compresses = false;
    comm::SimulationOptions options;
    options.network.bytes_per_second = bytes_per_second;
    options.network.jitter = {};
    options.world.algorithm = "ring";
    comm::simulate(2, options, [&](comm::SimulatedRank& rank) {
      const auto compressor = make_compressor("auto", *rank.world, one_bucket(), 1);
      if (rank.rank == 0) compresses = compressor != nullptr;
    });
    return compresses;
  };
  EXPECT_TRUE(chosen(1e6));    // 25 KB take 25 ms
  EXPECT_FALSE(chosen(1e13));  // only the 2 us of a message count
}

TEST(Compressor, NothingCrossesAWireAlone) {
  run_ranks(1, [](RankContext& rank) {
    EXPECT_EQ(make_compressor("bf16", *rank.world, one_bucket(), 1), nullptr);
    EXPECT_EQ(make_compressor("none", *rank.world, one_bucket(), 1), nullptr);
  });
}

// Top-k sends indices of 32 bits.
TEST(Compressor, TopKRefusesABucketThatItsIndicesCannotReach) {
  run_ranks(2, [](RankContext& rank) {
    const std::int64_t count = (std::int64_t{1} << 31) + 1;
    EXPECT_THAT([&] { make_compressor("topk:0.01", *rank.world, {{.count = count}}, 1); },
                ThrowsMessage<ConfigError>(HasSubstr("2^31")));
  });
}

TEST(Compressor, ABucketMayBeEmpty) {
  for (const char* spec : {"topk:0.5", "randomk:0.5"})
    run_ranks(2, [&](RankContext& rank) {
      const auto compressor = make_compressor(spec, *rank.world, {{.count = 0}}, 1);
      EXPECT_EQ(reduce(*compressor, at::empty({0}, at::kFloat)).numel(), 0) << spec;
    });
}

TEST(Compressor, RefusesWhatItDoesNotKnow) {
  for (const auto& [spec, why] : {std::pair("gzip", "not known"),
                                  {"topk", "share"},
                                  {"topk:0", "share"},
                                  {"topk:1.5", "share"},
                                  {"powersgd:0", "rank"},
                                  {"powersgd:2.5", "rank"},
                                  {"bf16:3", "no argument"},
                                  {"", "not known"}}) {
    EXPECT_THAT([&] { check_compression(spec); }, ThrowsMessage<ConfigError>(HasSubstr(why)))
        << spec;
  }
  for (const char* spec :
       {"none", "auto", "bf16", "f16", "onebit", "topk:0.01", "powersgd:4", "powersgd:4,0"}) {
    EXPECT_NO_THROW(check_compression(spec));
  }
}

}  // namespace
}  // namespace trireme::inline v0::parallel
