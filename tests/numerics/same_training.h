// expect_same_training(layout): trains the cases on a layout in real processes and compares hashes
// and loss curves with those of one rank, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <istream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/testing/run_processes.h"

namespace trireme::numerics {

struct Layout {
  int ranks = 1;
  std::string transport = "shm";
  std::vector<std::string> arguments = {};  // of the body
  std::chrono::seconds time_limit{100};
  std::string body = "train";
};

/// "case algorithm" -> "weights hash, loss hash", as the ranks print it:
///     RESULT case algorithm hash losses
///     COMPUTED case algorithm what       (once per item)
struct Results {
  std::map<std::string, std::string> of_case;
  std::map<std::string, std::multiset<std::string>> computed;
  std::string description;
};

/// Reads the lines that one rank printed. Lines that begin otherwise are not the rank's: a library may
/// print one, as MPICH's UCX does at the end of a process.
inline void read_results(std::istream& lines, Results& results) {
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, which, algorithm, hash, losses, more;
    words >> word >> which >> algorithm >> hash;
    if (word != "RESULT" && word != "COMPUTED") continue;
    if (word == "RESULT") words >> losses;
    EXPECT_TRUE(words && !(words >> more)) << "not as a rank prints it: " << line;
    if (word == "COMPUTED") {
      results.computed[which + " " + algorithm].insert(hash);
      continue;
    }
    const auto [at, added] = results.of_case.emplace(which + " " + algorithm, hash + " " + losses);
    EXPECT_EQ(at->second, hash + " " + losses) << "ranks differ in " << which;
  }
}

inline Results train_layout(const Layout& layout) {
  testing::ProcessOptions options{.time_limit = layout.time_limit, .transport = layout.transport};
  options.arguments = layout.arguments;
  const testing::ProcessRun run = testing::run_processes(layout.ranks, layout.body, options);
  Results results;
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  for (const testing::ProcessOutcome& rank : run.ranks) {
    std::istringstream lines(rank.out);
    read_results(lines, results);
  }
  EXPECT_FALSE(results.of_case.empty()) << run.describe();
  return results;
}

/// Drops the algorithm: all results of a case must be equal.
inline std::map<std::string, std::string> by_case(const Results& results) {
  std::map<std::string, std::string> merged;
  for (const auto& [key, value] : results.of_case) {
    const std::string which = key.substr(0, key.find(' '));
    const auto [at, added] = merged.emplace(which, value);
    EXPECT_EQ(at->second, value) << key << " differs from another algorithm";
  }
  return merged;
}

/// The results of one rank, by default for `expect_same_training`; trained once per program.
struct Reference {
  explicit Reference(const std::string& body) : results(train_layout({.body = body})) {}
  /// The results of one training of the case, by any algorithm.
  const std::multiset<std::string>& computed_of(const std::string& which) const {
    const auto found = results.computed.lower_bound(which + " ");
    EXPECT_TRUE(found != results.computed.end() && found->first.starts_with(which + " ")) << which;
    return found->second;
  }
  Results results;
  std::map<std::string, std::string> of_case = by_case(results);
};
inline const Reference& reference(const std::string& body = "train") {
  static std::map<std::string, Reference> all;
  return all.try_emplace(body, body).first->second;
}
inline const std::map<std::string, std::string>& one_rank(const std::string& body = "train") {
  return reference(body).of_case;
}

inline void expect_same_training(const Layout& layout) {
  const Results results = train_layout(layout);
  const auto merged = by_case(results);
  EXPECT_EQ(merged.size(), one_rank().size());
  for (const auto& [which, value] : merged)
    EXPECT_EQ(value, one_rank().at(which))
        << which << " on " << layout.ranks << " ranks over " << layout.transport;
  // Every micro-batch was computed by exactly one rank (the multiset would hold it twice), and
  // losses that the loop sees have the same bits.
  for (const auto& [key, items] : results.computed)
    EXPECT_EQ(items, reference().computed_of(key.substr(0, key.find(' ')))) << key;
}

}  // namespace trireme::numerics
