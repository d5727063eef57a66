// The words that commands take, for completion: collectives, algorithms, schedules, graphs.
#pragma once

#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace command {

/// "all-reduce", ...: those that `show`, `verify` and `bench comm` know.
std::vector<std::string> collective_names();
/// Those of all collectives, each once, registered ones too, and "direct".
std::vector<std::string> algorithm_names();
std::vector<std::string> schedule_names();

}  // namespace command
}  // namespace v0
}  // namespace trireme
