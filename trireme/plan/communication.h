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

/// all_reduce_of_buckets() over one kind of link; `source` says where its cost comes from.
Communication all_reduce_over(const LinkCost& link, const std::string& source, int ranks,
                              std::size_t bytes, std::size_t bucket_bytes);

/// The cost of sending `bytes` to each of `messages` neighbours and receiving as many, in sequence.
Communication messages_of(const Tuning* tuning, const std::string& path,
                          const std::string& transport, int messages, std::size_t bytes);

/// The seconds of one synchronous exchange with parameter servers, without updating the weights.
/// `workers` and `servers` >= 1.
///
/// n workers send gradients of B bytes to S servers and get new weights. Each worker and server has
/// one link of latency alpha and beta seconds a byte, which carries one message after the other in
/// each direction. The parameters are cut evenly: a worker sends B / S bytes to each server.
///
///   gradients   a server's link takes in n B / S bytes. All workers send to server 0 first, then
///               to 1, ..., so the last server's messages begin (S - 1) B / S bytes later:
///               alpha + (n + S - 1) / S B beta
///   sums        each server adds n gradients, (n - 1) B / S gamma, and answers with the sums of
///               squares, a 2,048th of the bytes: alpha
///   update      the workers say which rate to take: alpha
///   weights     the same bytes the other way: alpha + (n + S - 1) / S B beta
///
/// In all 4 alpha + 2 (n + S - 1) / S B beta + (n - 1) / S B gamma. This grows with n; a ring's
/// 2 (n - 1) / n B beta does not. With as many servers as workers it is twice a ring's.
double server_exchange_seconds(const LinkCost& link, int workers, int servers, double bytes);

/// The text of a tuning table; empty if there is no such file, or if its permissions or its
/// folder's forbid to read it. ConfigError if it cannot be read for another reason.
std::string read_tuning_file(const std::string& path);
/// Reads the file at tuning_path(); nullopt if there is none. ConfigError if it is invalid.
std::optional<Tuning> read_tuning();

}  // namespace trireme::inline v0::plan
