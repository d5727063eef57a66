#include "trireme/comm/simulate.h"

#include <exception>
#include <string>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0::comm {
namespace {

// Adds the rank and the seed to the error's message, so that a failure can be repeated.
[[noreturn]] void rethrow(int rank, std::uint64_t seed) {
  const std::string place =
      "rank " + std::to_string(rank) + " (seed " + std::to_string(seed) + "): ";
  try {
    throw;
  } catch (const net::DeadlockError& deadlock) {
    throw net::DeadlockError(place + deadlock.message(), rank);
  } catch (const Error& known) {
    ErrorContext context = known.context();
    if (context.rank < 0) context.rank = rank;
    throw_error(known.code(), place + known.message(), std::move(context));
  } catch (...) {
    throw Error(ExitCode::UserCode, place + describe(std::current_exception()).sentence,
                {.rank = rank});
  }
}

}  // namespace

void simulate(int size, const SimulationOptions& options,
              const std::function<void(SimulatedRank&)>& body) {
  net::SimNetwork network(size, options.network);
  network.run([&](int rank) {
    try {
      SimulatedRank context{rank, size, network.waiter(rank), network.transport(rank), nullptr};
      CommunicatorOptions world = options.world;
      if (options.prepare) options.prepare(context, world);
      context.world = std::make_shared<Communicator>(context.transport, std::move(world));
      body(context);
    } catch (...) {
      rethrow(rank, options.network.seed);
    }
  });
}

}  // namespace trireme::inline v0::comm
