#include "trireme/train/evaluation/forward_model.h"

#include <gtest/gtest.h>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/job/job.h"
#include "trireme/models/models.h"
#include "trireme/net/alone_transport.h"

namespace trireme::forward_model_test {
namespace {

// Options that a run on several ranks, or on a device, may have had.
TEST(ForwardOptions, AreForOneProcessWhateverTheRunHad) {
  const StrategyOptions trained[] = {
      {},
      {.sync = "hybrid", .shard = 2},
      {.sync = "hybrid", .data = 2, .shard = 2},
      {.sync = "zero1", .shares = "2:1"},
      {.offload = "host"},
      {.offload_activations = "host", .graphs = true},
      {.graphs = true},
      {.sync = "zero3", .pipeline = 2, .schedule = "interleaved", .chunks = 2},
      {.tensor = 2, .sequence = true},
      {.context = 2, .expert = 2},
      {.sync = "diloco", .data = 3},
      {.sync = "server", .server = {.staleness = 4}},
  };
  Job job(std::make_shared<net::AloneTransport>(RealWaiter::make()), {}, nullptr);
  for (const StrategyOptions& options : trained)
    EXPECT_NO_THROW(Strategy(job, models::make_mlp({.widths = {4, 4}}),
                             train::forward_options(options), AdamW{}))
        << options.sync << ", member " << &options - trained;
}

}  // namespace
}  // namespace trireme::forward_model_test
