// A rank whose monotonic clock is hours apart from the others', in its own time namespace, as on
// another host; and a check that such ranks' traces are aligned. For test processes only.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "trireme/comm/trace/gather_trace.h"
#include "trireme/job.h"

namespace trireme::test {

inline constexpr std::int64_t kApart = 5'000'000'000'000;  // from one rank's clock to the next's

/// Executes this program again with its clock `rank` times kApart ahead; returns in the new one.
inline void enter_own_clock(int argc, char** argv, int rank) {
  if (std::getenv("TRIREME_TEST_CLOCK")) return;
  setenv("TRIREME_TEST_CLOCK", "own", 1);
  const std::string ahead = std::to_string(rank * (kApart / 1'000'000'000));
  std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> words{"unshare", "-T", "--monotonic", ahead, self};
  words.insert(words.end(), argv + 1, argv + argc);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp("unshare", pointers.data());
  _exit(127);
}

/// The earliest end and the latest begin of one call over all ranks, on rank 0's clock.
struct Meeting {
  std::int64_t begin = 0, end = 0;
  int ranks = 0;
};

/// Checks on aligned clocks that all ranks began a barrier before any rank left it.
inline int check_clocks(Job& job, const observe::Trace& trace) {
  constexpr int kFences = 50;
  for (int i = 0; i < kFences; ++i) barrier(job.world(), {.label = std::to_string(i)});
  const auto traces = comm::gather_traces(job.world(), trace, job.host_name());
  std::int64_t error = 0;
  std::map<std::string, Meeting> fences;
  for (const observe::RankTrace& one : traces) {
    if (std::abs(one.clock_offset + one.rank * kApart) > one.clock_error) return 3;
    if (one.rank > 0 && one.clock_error == 0) return 4;
    error = std::max(error, one.clock_error);
    for (const observe::TraceSpan& span : one.spans) {
      const std::string& name = one.names[span.name];
      if (!name.starts_with("barrier ") || one.lanes[span.lane].first != "communication world")
        continue;
      Meeting& fence = fences.try_emplace(name, Meeting{INT64_MIN, INT64_MAX}).first->second;
      fence.begin = std::max(fence.begin, span.begin + one.clock_offset);
      fence.end = std::min(fence.end, span.end + one.clock_offset);
      ++fence.ranks;
    }
  }
  if (job.rank() != 0) return 0;
  if (error > 10'000'000 || fences.size() != kFences) return 5;
  for (const auto& [name, fence] : fences) {
    if (fence.ranks != job.size()) return 6;
    if (fence.begin > fence.end + 2 * error) return 7;
  }
  std::printf("%s: clocks to %lld ns\n", std::string(job.world().transport_name()).c_str(),
              static_cast<long long>(error));
  return 0;
}

}  // namespace trireme::test
