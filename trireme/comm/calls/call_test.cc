// The parts of an engine that stand alone: checks of arguments, the queue of calls, the cut of a
// call's buffers into chunks.
#include "trireme/comm/calls/call.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/calls/call_checks.h"
#include "trireme/comm/rounds/extents.h"

namespace trireme::comm::call_test {
namespace {

std::shared_ptr<Call> call_of(OpKind kind) {
  Operation operation;
  operation.kind = kind;
  return std::make_shared<Call>(std::move(operation));
}

TEST(CallChecks, RefuseWhatCannotBeRight) {
  const CallChecks checks(1, 3);
  const std::vector<std::size_t> two{1, 2}, three{1, 2, 3};
  EXPECT_NO_THROW(checks.counts(three, "gather"));
  EXPECT_NO_THROW(checks.root(2, "gather"));
  EXPECT_NO_THROW(checks.reducible(DType::F32, ReduceOp::Mean, "reduce"));
  EXPECT_THROW(checks.counts(two, "gather"), ConfigError);
  EXPECT_THROW(checks.root(3, "gather"), ConfigError);
  EXPECT_THROW(checks.reducible(DType::I32, ReduceOp::Mean, "reduce"), ConfigError);
  bool asked = false;
  checks.require(true, "gather", [&] { return asked = true, "the text of a refusal"; });
  EXPECT_FALSE(asked);
}

TEST(CallText, PrintsWhateverAPeerSent) {
  Header header;
  header.kind = header.part_of = OpKind::Send;
  header.root = static_cast<std::int32_t>(3000000000);  // the tag
  header.dtype = static_cast<DType>(200);
  header.count = 7;
  EXPECT_EQ(call_text(header, header), "send(tag 3000000000, unknown type, 7) as call 0");
}

TEST(CallQueue, StartsOneCallAfterTheOther) {
  CallQueue queue;
  EXPECT_EQ(queue.start(), nullptr);
  const auto region = call_of(OpKind::Allocate), first = call_of(OpKind::Barrier),
             second = call_of(OpKind::AllReduce);
  for (const auto& one : {region, first, second}) queue.push(one);
  EXPECT_EQ(region->operation.sequence, 1u);  // allocations have numbers of their own
  EXPECT_EQ(first->operation.sequence, 1u);
  EXPECT_EQ(second->operation.sequence, 2u);
  EXPECT_EQ(queue.first_user_call(), &first->operation);
  EXPECT_EQ(queue.start(), region);
  EXPECT_EQ(queue.start(), nullptr);  // it runs
  queue.stop();
  EXPECT_EQ(queue.start(), region);  // its next step
  queue.stop();
  queue.pop();
  EXPECT_EQ(queue.start(), first);
  EXPECT_EQ(queue.take_all().size(), 2u);
  EXPECT_TRUE(queue.empty());
}

TEST(Call, GoesOnWhileThereIsAStep) {
  const auto call = call_of(OpKind::AllGather);
  EXPECT_FALSE(call->go_on());
  call->operation.label = "table";
  call->operation.next = [](Operation& next) {
    next.kind = OpKind::Barrier;
    return next.step < 2;
  };
  EXPECT_TRUE(call->go_on());
  EXPECT_EQ(call->operation.kind, OpKind::Barrier);
  EXPECT_EQ(call->operation.label, "table");
  EXPECT_FALSE(call->go_on());
}

TEST(Extents, OfPiecesAndExchanges) {
  Operation gather;
  gather.kind = OpKind::Gather;
  gather.counts = {2, 0, 3};
  const auto pieces = extents_of(gather, 3, 0, 3, {});
  EXPECT_EQ(pieces.at(2).in, 0u);
  EXPECT_EQ(pieces.at(2).out, 2u);
  EXPECT_EQ(pieces.at(2).count, 3u);
  Operation exchange;
  exchange.kind = OpKind::AllToAll;
  exchange.counts = {1, 2};
  exchange.recv_counts = {5, 2};
  const auto chunks = extents_of(exchange, 4, 1, 2, {});  // chunk 2: from rank 1 to rank 0
  EXPECT_EQ(chunks.at(2).count, 1u);
  EXPECT_EQ(chunks.at(1).count, 5u);
  EXPECT_EQ(chunks.at(3).in, 1u);
  EXPECT_EQ(chunks.at(3).out, 5u);
  EXPECT_EQ(chunks.at(0).count, 0u);  // stays on rank 0
  EXPECT_EQ(chunks.size(), 3u);
}

}  // namespace
}  // namespace trireme::comm::call_test
