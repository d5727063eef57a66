// The algorithms by collective and name: those that ship, and those that a program registers. What
// runs, what `trireme show` draws and what `trireme verify` checks are all found here.
//
// Thread safe. An entry, once registered, stays for the life of the process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/op_kind.h"
#include "trireme/comm/program.h"
#include "trireme/comm/route.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct AlgorithmEntry {
  OpKind kind = OpKind::AllReduce;
  std::string name;   // "ring"
  std::string about;  // one line: what it does, rounds, bytes, source
  Generator generator;
};

/// Adds an algorithm. ConfigError if `kind` has one of that name, or the name is empty, longer than
/// 16 characters, or one of "auto", "direct".
const AlgorithmEntry& register_algorithm(AlgorithmEntry entry);
/// Null if there is none.
const AlgorithmEntry* find_algorithm(OpKind kind, std::string_view name);
/// All of them, those that ship first.
std::vector<const AlgorithmEntry*> algorithms_of(OpKind kind);

/// False for one that a program registered.
bool ships(const AlgorithmEntry& entry);

/// Who holds which leaves of which chunk at the beginning of `kind`, and who must hold the sum of
/// what at the end. `total`: leaves (collectives that do not add have one).
Layout layout_of(OpKind kind, int size, std::uint32_t total, int root);

}  // namespace comm

/// Registers an all-reduce of one's own; --algorithm, `comm.algorithm`, `trireme show` and `trireme
/// verify` then know it by its name. Errors: comm::register_algorithm.
///
///     const auto registered = trireme::register_all_reduce("mine", mine);
const comm::AlgorithmEntry& register_all_reduce(std::string name, comm::Generator generator,
                                                std::string about = {});

}  // namespace v0
}  // namespace trireme
