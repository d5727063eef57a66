// The threads of this process, and the signals that they block.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace trireme::inline v0::testing {

/// A folder in /proc for each thread.
inline std::set<std::string> threads() {
  std::set<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    all.insert(entry.path().string());
  return all;
}

inline bool blocks(const std::string& thread, int signal) {
  std::ifstream status(thread + "/status");
  const std::string text{std::istreambuf_iterator<char>(status), {}};
  const auto at = text.find("SigBlk:\t");
  return at != std::string::npos &&
         (std::stoull(text.substr(at + 8, 16), nullptr, 16) & 1ull << (signal - 1)) != 0;
}

}  // namespace trireme::inline v0::testing
