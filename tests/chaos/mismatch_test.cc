// Ranks that make different calls: random pairs of calls over the simulated network, from seeds.
// Every rank refuses within 0.1 s, prints both calls, and no buffer changes: no wrong sum goes
// unnoticed. 300 pairs here; tests/chaos/mismatch.full (label soak) draws 10,000.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/comm/calls/op_kind.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/kernel/tree_sum.h"
#include "trireme/testing/run_ranks.h"

namespace trireme {
namespace {

using comm::Communicator;
using comm::OpKind;
using testing::RankContext;
using Random = std::mt19937_64;

struct CallSpec {
  OpKind kind = OpKind::AllReduce;
  ReduceOp op = Sum;
  DType dtype = DType::F32;
  std::size_t count = 0;  // of the smaller buffer
  int root = 0;
  std::uint32_t total = 0;  // leaves of an all_reduce of terms; 0: one per rank
  int uneven = 0;           // pieces (see below): how many more elements the last rank has
  std::string algorithm = {};
  friend bool operator==(const CallSpec&, const CallSpec&) = default;
};

std::string describe(const CallSpec& call) {
  std::ostringstream text;
  text << comm::name_of(call.kind) << " op " << int(call.op) << " dtype "
       << trireme::name_of(call.dtype) << " count " << call.count << " root " << call.root
       << " total " << call.total << " uneven " << call.uneven << " by " << call.algorithm;
  return text.str();
}

template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return *(values.begin() + random() % values.size());
}

bool reduces(OpKind kind) {
  return kind == OpKind::AllReduce || kind == OpKind::ReduceScatter || kind == OpKind::Reduce;
}
bool has_pieces(OpKind kind) {
  return kind == OpKind::AllGather || kind == OpKind::Gather || kind == OpKind::Scatter;
}
bool has_root(OpKind kind) {
  return kind == OpKind::Broadcast || kind == OpKind::Reduce || kind == OpKind::Gather ||
         kind == OpKind::Scatter;
}

// Fields that a kind does not use keep their defaults, so that unequal specs are unequal calls.
CallSpec draw(Random& random, int size) {
  CallSpec call;
  call.kind = one_of(random, {OpKind::AllReduce, OpKind::AllReduce, OpKind::Broadcast,
                              OpKind::AllGather, OpKind::ReduceScatter, OpKind::Reduce,
                              OpKind::Gather, OpKind::Scatter, OpKind::AllToAll, OpKind::Barrier});
  if (call.kind == OpKind::Barrier) return call;
  call.dtype = one_of(random, {DType::F32, DType::F64, DType::BF16, DType::I32, DType::I64});
  call.count = one_of<std::size_t>(random, {0, 1, 2, 6, 12, 13, 500, 1024, 1025, 5000});
  if (reduces(call.kind)) call.op = one_of(random, {Sum, Min, Max, Product});
  if (has_root(call.kind)) call.root = int(random() % std::size_t(size));
  if (has_pieces(call.kind)) call.uneven = int(random() % 3);
  if (call.kind == OpKind::AllReduce) {
    const auto all = comm::algorithms_of(OpKind::AllReduce);
    const std::size_t which = random() % (all.size() + 1);
    call.algorithm = which < all.size() ? all[which]->name : "direct";
    const auto ranks = static_cast<std::uint32_t>(size);
    call.total = one_of<std::uint32_t>(random, {0, ranks + 1, 2 * ranks, 12});
    if (call.total != 0) call.op = Sum;
  }
  return call;
}

CallSpec changed(CallSpec call, Random& random, int size) {
  for (CallSpec other;;) {
    if (random() % 2 == 0) {
      other = draw(random, size);
    } else {  // change one field only
      other = call;
      const CallSpec drawn = draw(random, size);
      switch (random() % 5) {
        case 0:
          other.op = drawn.op;
          break;
        case 1:
          other.dtype = drawn.dtype;
          break;
        case 2:
          other.count = drawn.count;
          break;
        case 3:
          other.root = drawn.root;
          break;
        default:
          other.algorithm = drawn.algorithm;
      }
      if (!reduces(other.kind) || other.total != 0) other.op = Sum;
      if (!has_root(other.kind)) other.root = 0;
      if (other.kind != OpKind::AllReduce) other.algorithm.clear();
      if (other.kind == OpKind::AllReduce && other.algorithm.empty()) other.algorithm = "naive";
      if (other.kind == OpKind::Barrier) other = {.kind = OpKind::Barrier};
    }
    if (!(other == call)) return other;
  }
}

// The buffers of one call and their initial contents.
class Buffers {
 public:
  Buffers(Communicator& world, const CallSpec& call) : call_(call) {
    const std::size_t size = static_cast<std::size_t>(world.size());
    const bool pieces = has_pieces(call.kind);
    counts_.assign(size, call.count);
    counts_.back() += static_cast<std::size_t>(call.uneven);
    const std::size_t mine = pieces ? counts_[static_cast<std::size_t>(world.rank())] : call.count;
    const std::size_t all =
        pieces ? call.count * size + std::size_t(call.uneven) : call.count * size;
    small_ = fill(mine), large_ = fill(all);
    other_ = fill(call.kind == OpKind::AllToAll ? all : mine);
    if (call.total != 0) {
      for (const auto& node : kernel::maximal_nodes(
               kernel::contiguous_share(call.total, world.size(), world.rank()), call.total)) {
        terms_.push_back(fill(call.count));
        nodes_.push_back(node);
      }
    }
    before_ = everything();
  }
  Work call(Communicator& world) {
    const comm::OpOptions options{.algorithm = call_.algorithm};
    switch (call_.kind) {
      case OpKind::AllReduce: {
        if (call_.total == 0) return world.all_reduce(whole(small_), call_.op, options);
        std::vector<comm::Term> terms;
        for (std::size_t i = 0; i < terms_.size(); ++i) {
          terms.push_back({whole(terms_[i]), nodes_[i].first, nodes_[i].count});
        }
        return world.all_reduce(terms, call_.total, whole(small_), options);
      }
      case OpKind::Broadcast:
        return world.broadcast(whole(small_), call_.root);
      case OpKind::AllGather:
        return world.all_gather_v(whole(small_), whole(large_), counts_);
      case OpKind::ReduceScatter:
        return world.reduce_scatter(whole(large_), whole(small_), call_.op);
      case OpKind::Reduce:
        return world.reduce(whole(small_), whole(other_), call_.op, call_.root);
      case OpKind::Gather:
        return world.gather_v(whole(small_), whole(large_), counts_, call_.root);
      case OpKind::Scatter:
        return world.scatter_v(whole(large_), whole(small_), counts_, call_.root);
      case OpKind::AllToAll:
        return world.all_to_all(whole(large_), whole(other_));
      default:
        return world.barrier();
    }
  }
  bool untouched() const { return everything() == before_; }

 private:
  using Bytes = std::vector<std::byte>;
  Bytes fill(std::size_t count) const {
    Bytes bytes(count * size_of(call_.dtype));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
    return bytes;
  }
  Buffer whole(Bytes& bytes) const {
    return {bytes.data(), bytes.size() / size_of(call_.dtype), call_.dtype, {}, {}, nullptr};
  }
  std::vector<Bytes> everything() const {
    std::vector<Bytes> all = terms_;
    all.push_back(small_);
    all.push_back(large_);
    all.push_back(other_);
    return all;
  }

  const CallSpec call_;
  std::vector<std::size_t> counts_;
  Bytes small_, large_, other_;
  std::vector<Bytes> terms_;
  std::vector<kernel::LeafRange> nodes_;
  std::vector<Bytes> before_;
};

void expect_refused(RankContext& rank, const CallSpec& mine, const CallSpec& other) {
  Buffers buffers(*rank.world, mine);
  const TimePoint start = rank.waiter->now();
  try {
    buffers.call(*rank.world).wait();
    ADD_FAILURE() << "rank " << rank.rank << " was not refused";
  } catch (const MismatchError& error) {
    const std::string text = error.what();
    for (const CallSpec* side : {&mine, &other}) {
      EXPECT_NE(text.find(" called " + std::string(comm::name_of(side->kind)) + "("), text.npos)
          << text;
    }
    EXPECT_NE(text.find("rank " + std::to_string(rank.rank)), text.npos) << text;
    EXPECT_FALSE(error.advice().empty());
  }
  EXPECT_LT(rank.waiter->now() - start, std::chrono::milliseconds(100));
  EXPECT_TRUE(buffers.untouched()) << "rank " << rank.rank << " was written to";
}

// Makes `before` equal calls, then one in which rank `odd` differs from the others.
void run_pair(std::uint64_t seed) {
  Random random(seed);
  const int size = one_of(random, {2, 2, 3, 4, 5, 8});
  const int odd = int(random() % std::size_t(size));
  const CallSpec usual = draw(random, size), other = changed(usual, random, size);
  const int before = int(random() % 3);
  SCOPED_TRACE("seed " + std::to_string(seed) + ": " + std::to_string(size) + " ranks, rank " +
               std::to_string(odd) + " calls " + describe(other) + ", the others " +
               describe(usual));
  testing::run_ranks(size,
                     [&](RankContext& rank) {
                       for (int i = 0; i < before; ++i)
                         Buffers(*rank.world, usual).call(*rank.world).wait();
                       // Otherwise a slow rank may still be in one of them when the others end.
                       rank.world->barrier().wait();
                       const bool differs = rank.rank == odd;
                       expect_refused(rank, differs ? other : usual, differs ? usual : other);
                       EXPECT_THROW(rank.world->barrier().wait(), MismatchError)
                           << "broken for good";
                     },
                     {.seed = seed});
}

int number_of_pairs() {
  const char* text = std::getenv("TRIREME_MISMATCHED_PAIRS");
  return text ? std::atoi(text) : 300;
}

TEST(Mismatch, RandomPairsAreRefusedOnEveryRankAndTouchNothing) {
  for (int pair = 1; pair <= number_of_pairs(); ++pair) {
    run_pair(static_cast<std::uint64_t>(pair));
    if (::testing::Test::HasFailure()) return;
  }
}

// The same calls in another order are refused at the first difference.
TEST(Mismatch, AnotherOrderIsRefused) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    const int size = one_of(random, {2, 3, 5});
    const CallSpec first = draw(random, size), second = changed(first, random, size);
    SCOPED_TRACE("seed " + std::to_string(seed));
    testing::run_ranks(size,
                       [&](RankContext& rank) {
                         const bool turned = rank.rank == 0;
                         Buffers a(*rank.world, turned ? second : first),
                             b(*rank.world, turned ? first : second);
                         const Work works[] = {a.call(*rank.world), b.call(*rank.world)};
                         EXPECT_THROW(works[0].wait(), MismatchError);
                         EXPECT_THROW(works[1].wait(), MismatchError);
                         EXPECT_TRUE(a.untouched() && b.untouched());
                       },
                       {.seed = seed});
  }
}

}  // namespace
}  // namespace trireme
