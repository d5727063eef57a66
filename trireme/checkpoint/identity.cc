#include "trireme/checkpoint/identity.h"

#include <algorithm>
#include <sstream>

#include "trireme/base/differing_lines.h"
#include "trireme/base/error.h"

namespace trireme::inline v0::checkpoint {
namespace {

// `text` without the lines "KEY = ..." of these keys.
std::string without(const std::string& text, const std::vector<std::string>& keys) {
  std::istringstream in(text);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const auto named = [&](const std::string& key) { return line.starts_with(key + " = "); };
    if (std::none_of(keys.begin(), keys.end(), named)) kept += line + "\n";
  }
  return kept;
}

}  // namespace

void compare_identity(const std::string& saved, const std::string& own,
                      const std::vector<std::string>& changed, const std::string& path) {
  if (saved.empty() || own.empty()) return;
  const std::string theirs = without(saved, changed), ours = without(own, changed);
  if (theirs == ours) return;
  throw CheckpointError(path + " is of another job: it has " + differing_lines(theirs, ours) +
                            ", and this one has " + differing_lines(ours, theirs),
                        {.operation = "resume",
                         .advice = "Resume with the same model, data, seed and batch, or choose "
                                   "another folder."});
}

}  // namespace trireme::inline v0::checkpoint
