// A DataParallel needs these things from the loop around it, and refuses others.
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/job/job_input.h"
#include "trireme/kernel/assignment.h"
#include "trireme/sync/strategy_context.h"

namespace trireme::inline v0::parallel {

/// The communicator of a DataParallel if another one lives; else null, and it uses the job's. Ranks
/// may call two of one loop in different orders: a backward pass goes through both, and a rank
/// without samples takes part in a batch of one after the other. ConfigError if `sync` has servers,
/// which keep the weights of one. Collective.
std::shared_ptr<comm::Communicator> make_loop_group(const InputReader& reader,
                                                    const StrategyContext& env,
                                                    const std::string& sync);

/// Throws ConfigError that says why step() has no micro-batch. `shares`: of this DataParallel.
[[noreturn]] void refuse_step(const InputReader& reader, const StrategyContext& env,
                              const kernel::Assignment& shares);
/// Throws ConfigError for a loop that never calls step().
[[noreturn]] void refuse_missing_steps(const StrategyContext& env);

}  // namespace trireme::inline v0::parallel
