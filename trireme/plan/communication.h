// What a training step's communication costs before anything ran: from the table that
// `trireme bench comm --tune` wrote where there is one, else from the α–β–γ formula. Pure
// functions.
//
// Formula: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
// MPICH", 2005: an all-reduce of b bytes by halving and doubling, or by a ring, moves
// 2(n-1)/n b bytes a rank and adds (n-1)/n b.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "trireme/plan/tuning.h"

namespace trireme {
inline namespace v0 {
namespace plan {

struct Communication {
  double seconds = 0;  // of a step, if nothing of it is hidden behind computing
  std::string source;  // where α, β, γ or the times come from, for people
};

/// `bytes` in buckets of `bucket_bytes`, one all-reduce each, among `ranks`. `transport` "auto" is
/// shm, as on one host. `algorithm` "auto": the fastest that was measured. `tuning` may be null;
/// `path`: the file that it was read from.
Communication all_reduce_of_buckets(const Tuning* tuning, const std::string& path,
                                    const std::string& transport, const std::string& algorithm,
                                    int ranks, std::size_t bytes, std::size_t bucket_bytes);

/// A rank sends `bytes` to each of `messages` neighbours and hears as many, one after the other.
Communication messages_of(const Tuning* tuning, const std::string& path,
                          const std::string& transport, int messages, std::size_t bytes);

/// The file at tuning_path(); nothing where there is none. ConfigError where it is broken.
std::optional<Tuning> read_tuning();

}  // namespace plan
}  // namespace v0
}  // namespace trireme
