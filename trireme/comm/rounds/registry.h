// The registry of algorithms, by collective and name: those that ship, and those that a program
// registers. Calls, `trireme show` and `trireme verify` all look them up here.
//
// Thread safe. An entry stays registered for the life of the process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/op_kind.h"
#include "trireme/comm/rounds/program.h"
#include "trireme/comm/rounds/route.h"

namespace trireme::inline v0 {
namespace comm {

struct AlgorithmEntry {
  OpKind kind = OpKind::AllReduce;
  std::string name;   // "ring"
  std::string about;  // one line: what it does, rounds, bytes, source
  Generator generator;
};

/// Adds an algorithm. ConfigError if the name is taken for `kind`, empty, longer than 16
/// characters, "auto" or "direct".
const AlgorithmEntry& register_algorithm(AlgorithmEntry entry);
/// Null if there is none.
const AlgorithmEntry* find_algorithm(OpKind kind, std::string_view name);
/// All algorithms of `kind`; those that ship come first.
std::vector<const AlgorithmEntry*> algorithms_of(OpKind kind);

/// False if a program registered it.
bool ships(const AlgorithmEntry& entry);

/// The Layout of a collective. `total`: leaves of the sum; ignored if `kind` does not reduce,
/// and by reduce_scatter, which has `size`. ConfigError if `kind` has no rounds.
Layout layout_of(OpKind kind, int size, std::uint32_t total, int root);

}  // namespace comm

/// Registers a custom all-reduce; --algorithm, `comm.algorithm`, `trireme show` and `trireme
/// verify` then accept its name. Errors: comm::register_algorithm.
///
///     const auto registered = trireme::register_all_reduce("mine", mine);
const comm::AlgorithmEntry& register_all_reduce(std::string name, comm::Generator generator,
                                                std::string about = {});

}  // namespace trireme::inline v0
