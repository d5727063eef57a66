// Predicts the cost of a training step's communication: from the table written by `trireme bench
// comm --tune` if there is one, else from the alpha-beta-gamma formula. Pure functions.
//
// Formula: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
// MPICH", 2005. An all-reduce of b bytes, by halving and doubling or by a ring, moves 2(n-1)/n b
// bytes per rank and adds (n-1)/n b.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "trireme/plan/tuning.h"

namespace trireme::inline v0::plan {

struct Communication {
  double seconds = 0;  // per step, if nothing is hidden behind computation
  std::string source;  // where the constants or times come from, for people
};

/// The cost of reducing `bytes` among `ranks` in buckets of `bucket_bytes`, one all-reduce each.
/// `transport` "auto" means shm, as on one host. `algorithm` "auto" means the fastest one measured.
/// `tuning` may be null; `path` is the file that it was read from.
Communication all_reduce_of_buckets(const Tuning* tuning, const std::string& path,
                                    const std::string& transport, const std::string& algorithm,
                                    int ranks, std::size_t bytes, std::size_t bucket_bytes);

/// The same over one kind of link, as `source` has it.
Communication all_reduce_over(const LinkCost& link, const std::string& source, int ranks,
                              std::size_t bytes, std::size_t bucket_bytes);

/// The cost of sending `bytes` to each of `messages` neighbours and receiving as many, in sequence.
Communication messages_of(const Tuning* tuning, const std::string& path,
                          const std::string& transport, int messages, std::size_t bytes);

/// The text of a tuning table; empty if there is no such file, or if it lies in another user's folder.
/// ConfigError if it is there and cannot be read.
std::string read_tuning_file(const std::string& path);
/// Reads the file at tuning_path(); nullopt if there is none. ConfigError if it is invalid.
std::optional<Tuning> read_tuning();

}  // namespace trireme::inline v0::plan
