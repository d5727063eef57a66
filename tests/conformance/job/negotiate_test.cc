// Negotiation between real processes: two threads of each rank submit in different orders.
#include "trireme/comm/negotiate/negotiate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "trireme/job.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;

constexpr int kNames = 40, kRounds = 20;

TRIREME_PROCESS(negotiates) {
  Job job(argc, argv);
  comm::Negotiator negotiator(job.world());
  const auto submit = [&](int thread) {
    std::vector<int> order(kNames / 2);
    std::iota(order.begin(), order.end(), thread * kNames / 2);
    std::mt19937_64 random(static_cast<std::uint64_t>(job.rank() * 2 + thread));
    bool right = true;
    for (int round = 0; round < kRounds; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::vector<float>> x;
      std::vector<Work> works;
      for (const int i : order) {
        x.emplace_back(static_cast<std::size_t>(1 + i * 300), static_cast<float>(i + job.rank()));
      }
      for (std::size_t k = 0; k < order.size(); ++k) {
        works.push_back(negotiator.all_reduce("grad." + std::to_string(order[k]),
                                              Buffer::of(std::span(x[k])), Sum));
      }
      Work::all(works).wait();
      for (std::size_t k = 0; k < order.size(); ++k) {
        const auto sum =
            static_cast<float>(job.size() * order[k] + job.size() * (job.size() - 1) / 2);
        right &= x[k] == std::vector<float>(x[k].size(), sum);
      }
    }
    return right;
  };
  bool other = false;
  std::thread second([&] { other = submit(1); });
  const bool own = submit(0);
  second.join();
  const auto statistics = negotiator.statistics();
  return own && other && statistics.by_number == (kRounds - 1) * kNames ? 0 : 1;
}

class Negotiates : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, Negotiates, ::testing::Values("shm", "tcp"));

TEST_P(Negotiates, FromTwoThreadsInAnyOrder) {
  for (const int ranks : {1, 2, 3}) {
    ProcessOptions options;
    options.transport = GetParam();
    const ProcessRun run = run_processes(ranks, "negotiates", options);
    EXPECT_EQ(run.exit_code, 0) << ranks << " ranks\n" << run.describe();
  }
}

}  // namespace
}  // namespace trireme
