// The group of a DataParallel among several in one loop, and the refusals of wrong loops.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/job/job_input.h"
#include "trireme/kernel/assignment.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::inline v0::parallel {

/// A communicator of its own for a DataParallel if another one lives, since ranks may use the two
/// in different orders: a backward pass goes through both, and a rank without samples takes part in
/// a batch of one after the other. Null if there is no other. ConfigError if `sync` has servers,
/// which keep the weights of one. Collective.
std::shared_ptr<comm::Communicator> make_loop_group(const InputReader& reader,
                                                    const StrategyContext& env,
                                                    const std::string& sync);

/// The seed that rank 0 gives, as by torch::manual_seed(). Collective.
std::uint64_t agreed_seed(comm::Communicator& world, std::uint64_t own);

/// Throws ConfigError that says why step() has no micro-batch. `shares`: of this DataParallel.
[[noreturn]] void refuse_step(const InputReader& reader, const StrategyContext& env,
                              const kernel::Assignment& shares);
/// Throws ConfigError for a loop that never calls step().
[[noreturn]] void refuse_missing_steps(const StrategyContext& env);

}  // namespace trireme::inline v0::parallel
