#include "trireme/cli/torch/exchange_times.h"

#include <gtest/gtest.h>

#include <exception>

#include "trireme/testing/refused_threads.h"

namespace trireme::cli {
namespace {

// The threads are refused one after the other: those of the servers, of the workers, of their waiters.
TEST(MeasuredExchange, AThreadThatCannotStartIsAnErrorOfTheCommand) {
  OwnRuns runs("bench server");
  int failed = 0;
  for (std::size_t allowed = 0; allowed < 6; ++allowed) {
    SCOPED_TRACE(allowed);
    const testing::RefusedThreads no_more_than(allowed);
    try {
      measured_exchange({.servers = 1}, 2, 64, runs);
    } catch (const std::exception&) {
      ++failed;
    }
  }
  EXPECT_EQ(failed, 6);
  EXPECT_GT(measured_exchange({.servers = 1}, 2, 64, runs), 0);
}

}  // namespace
}  // namespace trireme::cli
