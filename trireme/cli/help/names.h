// Words that commands accept, for completion: collectives, algorithms, schedules.
#pragma once

#include <string>
#include <vector>

namespace trireme::inline v0::cli {

/// "all-reduce", ...: the collectives that `show`, `verify` and `bench comm` know.
std::vector<std::string> collective_names();
/// The algorithms of all collectives, each once, including registered ones and "direct".
std::vector<std::string> algorithm_names();
std::vector<std::string> schedule_names();

}  // namespace trireme::inline v0::cli
