// Two ranks over the simulated network, one parcel at a time: parcels arrive as they were sent,
// whatever the tensors are, before and after layouts are agreed; and refusals.
#include "trireme/pipeline/stage_link.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/testing/faulty_transport.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::parallel::link_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::RankContext;
using testing::run_ranks;

const std::vector<std::string> kNames = {"hidden", "marks"};

StageLink link_of(const RankContext& rank, bool gradients = false) {
  return StageLink({.pipeline = rank.world.get(),
                    .peer = 1 - rank.rank,
                    .from = gradients ? 1 : 0,
                    .to = gradients ? 0 : 1,
                    .gradients = gradients});
}

Parcel parcel_of_values(const std::vector<std::vector<at::Tensor>>& values) {
  Parcel parcel;
  for (const auto& value : values) {
    parcel.counts.push_back(value.size());
    for (const at::Tensor& tensor : value) {
      parcel.layouts.push_back(layout_of(tensor, tensor.is_floating_point()));
      parcel.tensors.push_back(tensor);
    }
  }
  return parcel;
}

// "hidden": three tensors, one with its dimensions swapped in memory. "marks": integers, a bool, a
// scalar and an empty tensor. A function of `seed`.
Parcel mixed(std::int64_t seed) {
  const at::Tensor hidden = at::arange(24, at::kFloat).view({4, 6}) + seed;
  return parcel_of_values({{hidden, hidden.t(), hidden.to(at::kBFloat16)},
                           {at::arange(5, at::kLong) * seed, hidden.gt(seed + 3),
                            at::scalar_tensor(seed, at::kDouble), at::empty({0, 3}, at::kFloat)}});
}

void expect_equal(const Parcel& got, const Parcel& sent) {
  EXPECT_FALSE(got.failed);
  EXPECT_EQ(got.counts, sent.counts);
  ASSERT_EQ(got.tensors.size(), sent.tensors.size());
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    SCOPED_TRACE("tensor " + std::to_string(i));
    ASSERT_EQ(got.tensors[i].defined(), sent.tensors[i].defined());
    EXPECT_EQ(got.layouts[i].carries_gradient, sent.layouts[i].carries_gradient);
    if (!sent.tensors[i].defined()) continue;
    EXPECT_EQ(got.tensors[i].scalar_type(), sent.tensors[i].scalar_type());
    EXPECT_EQ(got.tensors[i].strides(), sent.tensors[i].strides());
    EXPECT_TRUE(at::equal(got.tensors[i], sent.tensors[i]));
  }
}

// One step: sends the parcels in order; or receives them, with receives posted two ahead.
using Keys = std::vector<std::string>;
void send_all(StageLink& link, const Keys& keys, const std::vector<Parcel>& parcels,
              bool good = true) {
  for (std::uint32_t m = 0; m < parcels.size(); ++m) {
    if (!parcels[m].failed) link.check(keys[m], parcels[m], kNames);
    link.send(keys[m], m, parcels[m]);
  }
  link.sent().wait();
  link.settle(good);
}
std::vector<Parcel> receive_all(StageLink& link, const Keys& keys, bool good = true) {
  std::vector<Parcel> parcels;
  std::uint32_t posted = 0;
  for (std::uint32_t m = 0; m < keys.size(); ++m) {
    for (; posted < std::min<std::size_t>(keys.size(), m + 3); ++posted)
      link.post(keys[posted], posted);
    parcels.push_back(link.receive());
  }
  link.settle(good);
  return parcels;
}

void exchange(RankContext& rank, StageLink& link, const Keys& keys,
              const std::vector<Parcel>& parcels, bool good = true) {
  if (rank.rank == 0) return send_all(link, keys, parcels, good);
  const std::vector<Parcel> got = receive_all(link, keys, good);
  for (std::size_t m = 0; m < parcels.size(); ++m) {
    SCOPED_TRACE("micro-batch " + std::to_string(m));
    if (parcels[m].failed) {
      EXPECT_TRUE(got[m].failed);
    } else {
      expect_equal(got[m], parcels[m]);
    }
  }
}

TEST(StageLink, CarriesEveryTypeBeforeAndAfterLayoutsAreAgreed) {
  for (std::uint64_t seed : {1, 2, 3}) {
    run_ranks(2,
              [](RankContext& rank) {
                StageLink link = link_of(rank);
                for (int step = 0; step < 3; ++step)
                  exchange(rank, link, {"a", "a", "a", "a"},
                           {mixed(step), mixed(step + 7), mixed(-1), mixed(2)});
              },
              {.seed = seed});
  }
}

// A shorter last micro-batch has its own form; so has validation.
TEST(StageLink, EachFormHasLayoutsOfItsOwn) {
  const auto rows = [](std::int64_t count) {
    return parcel_of_values({{at::ones({count, 3})}, {at::arange(count)}});
  };
  run_ranks(2, [&](RankContext& rank) {
    StageLink link = link_of(rank);
    exchange(rank, link, {"full", "full", "short"}, {rows(4), rows(4), rows(1)});
    exchange(rank, link, {"full", "short", "evaluate"}, {rows(4), rows(1), rows(9)});
    exchange(rank, link, {"evaluate", "short", "full"}, {rows(9), rows(1), rows(4)});
  });
}

// Strides may change from step to step: values arrive in the agreed strides.
TEST(StageLink, OtherStridesAreMended) {
  run_ranks(2, [](RankContext& rank) {
    StageLink link = link_of(rank);
    const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
    exchange(rank, link, {"a"}, {parcel_of_values({{matrix}})});
    if (rank.rank == 0) {
      const Parcel turned = parcel_of_values({{matrix.t().contiguous().t()}});
      return send_all(link, {"a"}, {turned});
    }
    EXPECT_TRUE(at::equal(receive_all(link, {"a"})[0].tensors.at(0), matrix));
  });
}

// Autograd makes no gradient for an unused value. 70 tensors need the note's second word of bits.
TEST(StageLink, AbsentGradientsStayAbsent) {
  run_ranks(2, [](RankContext& rank) {
    StageLink link = link_of(rank, /*gradients=*/true);
    std::vector<at::Tensor> gradients;
    for (int i = 0; i < 70; ++i) gradients.push_back(at::full({2}, i));
    Parcel some = parcel_of_values({gradients});
    for (const std::size_t absent : {0u, 3u, 63u, 64u, 69u}) some.tensors[absent].reset();
    Parcel others = parcel_of_values({gradients});
    others.tensors[1].reset();
    for (int step = 0; step < 2; ++step) exchange(rank, link, {"a", "a"}, {some, others});
  });
}

// A failed parcel arrives too: nobody waits for tensors that were never made.
TEST(StageLink, AFailedParcelComesAsOne) {
  const Parcel failed{.failed = true};
  run_ranks(2, [&](RankContext& rank) {
    StageLink link = link_of(rank);
    exchange(rank, link, {"a", "a", "a"}, {mixed(1), failed, mixed(2)}, /*good=*/false);
    exchange(rank, link, {"a", "a"}, {failed, failed}, /*good=*/false);
    exchange(rank, link, {"a", "a"}, {mixed(3), mixed(4)});
    exchange(rank, link, {"a", "a", "a"}, {failed, mixed(5), failed}, /*good=*/false);
    exchange(rank, link, {"a", "a"}, {mixed(6), mixed(7)});
  });
}

// Layouts of a refused step are not agreed.
TEST(StageLink, ARefusedStepAgreesOnNothing) {
  const Parcel small = parcel_of_values({{at::ones({2})}}),
               large = parcel_of_values({{at::ones({5})}});
  run_ranks(2, [&](RankContext& rank) {
    StageLink link = link_of(rank);
    exchange(rank, link, {"a"}, {small}, /*good=*/false);
    exchange(rank, link, {"a"}, {large});
    exchange(rank, link, {"a"}, {large});
  });
}

std::string refusal(const StageLink& link, const Parcel& parcel) {
  try {
    link.check("a", parcel, kNames);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(StageLink, TheSenderNamesWhatIsNotAsAgreed) {
  const Parcel first = parcel_of_values({{at::ones({2, 3}), at::ones({2})}, {at::arange(4)}});
  const auto expect_refusals = [&](const StageLink& link) {
    EXPECT_THAT(
        refusal(link, parcel_of_values({{at::ones({2, 3}), at::ones({7})}, {at::arange(4)}})),
        AllOf(HasSubstr("stage 0 gives \"hidden\"[1] as F32 [7], but the agreed layout is F32 [2]"),
              HasSubstr("same shapes")));
    EXPECT_THAT(
        refusal(link, parcel_of_values(
                          {{at::ones({2, 3}), at::ones({2})}, {at::arange(4).to(at::kInt)}})),
        HasSubstr("\"marks\" as I32 [4] without gradient, but the agreed layout is I64 [4]"));
    Parcel frozen = first;
    frozen.layouts[0].carries_gradient = false;
    EXPECT_THAT(refusal(link, frozen), HasSubstr("\"hidden\"[0] as F32 [2, 3] without gradient"));
    EXPECT_THAT(refusal(link, parcel_of_values({{at::ones({2, 3})}, {at::arange(4)}})),
                HasSubstr("other numbers of tensors"));
    EXPECT_EQ(refusal(link, first), "");
  };
  run_ranks(2, [&](RankContext& rank) {
    StageLink link = link_of(rank);
    if (rank.rank == 1) {
      receive_all(link, {"a"});
      return;
    }
    EXPECT_EQ(refusal(link, first), "");
    link.send("a", 0, first);
    expect_refusals(link);  // within the first step
    link.sent().wait();
    link.settle(true);
    expect_refusals(link);
    std::vector<at::Tensor> many(300, at::ones({1}));
    EXPECT_THAT(refusal(link, parcel_of_values({many})), HasSubstr("gives 300 tensors"));
  });
}

// Ranks of one pipeline with different batches.
TEST(StageLink, AnotherFormThanTheSendersIsAMismatch) {
  run_ranks(2, [](RankContext& rank) {
    StageLink link = link_of(rank);
    exchange(rank, link, {"a"}, {parcel_of_values({{at::ones({2})}})});
    if (rank.rank == 0) {
      link.send("b", 0, parcel_of_values({{at::ones({3})}}));
      return;
    }
    link.post("a", 0);
    try {
      link.receive();
      ADD_FAILURE() << "it came";
    } catch (const Error& error) {  // a receive posted for the other form may fail first
      EXPECT_EQ(error.peer(), 0);
    }
  });
}

TEST(StageLink, APeerThatLeavesIsLostWithoutADeadline) {
  run_ranks(2, [](RankContext& rank) {
    StageLink link = link_of(rank);
    exchange(rank, link, {"a", "a"}, {mixed(1), mixed(2)});
    if (rank.rank == 0) return;
    const TimePoint begin = rank.waiter->now();
    try {
      for (std::uint32_t m = 0; m < 3; ++m) link.post("a", m);
      link.receive();
      ADD_FAILURE() << "it came";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.peer(), 0);
    }
    EXPECT_LT(rank.waiter->now() - begin, std::chrono::seconds(1));
  });
}

// The connection breaks at each send of a parcel, before and after layouts are agreed: neither side
// waits for ever, and no partial parcel is returned.
TEST(StageLink, BrokenInTheMiddleOfAParcelItEndsOnBothSides) {
  for (int place = 0; place < 12; ++place) {
    int ended = 0;
    comm::SimulationOptions options;
    int left = -1;  // sends until the cut
    options.prepare = [&](comm::SimulatedRank& rank, comm::CommunicatorOptions&) {
      if (rank.rank != 0) return;
      const auto inner = rank.transport;
      rank.transport = std::make_shared<testing::FaultyTransport>(
          inner, [&left, inner](testing::FaultyTransport::Call call, int) {
            if (call != testing::FaultyTransport::Call::Send || left < 0 || left-- > 0) return;
            inner->abort(std::make_exception_ptr(ResourceError("the cable is cut")));
          });
    };
    const int agreed_steps = place % 2;
    comm::simulate(2, options, [&](comm::SimulatedRank& rank) {
      StageLink link = link_of(rank);
      for (int step = 0; step < agreed_steps; ++step)
        exchange(rank, link, {"a", "a"}, {mixed(1), mixed(2)});
      try {
        if (rank.rank == 0) {
          left = place;
          send_all(link, {"a", "a"}, {mixed(3), mixed(4)});
        } else {
          receive_all(link, {"a", "a"});
        }
        ADD_FAILURE() << "rank " << rank.rank << " knows nothing of the cut at " << place;
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ExitCode::Resource || error.code() == ExitCode::PeerLost)
            << error.what();
        ++ended;
      }
    });
    EXPECT_EQ(ended, 2);
  }
}

}  // namespace
}  // namespace trireme::parallel::link_test
