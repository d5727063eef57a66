#include "trireme/ps/server/server_options.h"

#include <string>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::inline v0 {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "parameter server", .advice = advice});
}

}  // namespace

void check_replicas(int replicas, int servers) {
  const std::string text = "server.replicas = " + std::to_string(replicas);
  if (replicas < 1) refuse(text, "Use 1 (no copies), or up to one for each server.");
  if (replicas > servers)
    refuse(text + " with " + counted(servers, "server"),
           "A server has at most one copy of a shard: use more servers, or fewer replicas.");
}

void check_server_options(const ServerOptions& options, int workers, int servers) {
  const std::string staleness = "server.staleness = " + std::to_string(options.staleness);
  const std::string backup = "server.backup = " + std::to_string(options.backup);
  if (options.staleness < -1)
    refuse(staleness, "Use 0 (synchronous), a bound of 1 or more, or -1 (no bound).");
  if (options.backup < 0 || options.backup >= workers)
    refuse(backup + " with " + counted(workers, "worker"),
           "Leave at least one worker whose gradient counts.");
  if (options.backup > 0 && options.staleness != 0)
    refuse(backup + " with " + staleness,
           "Backup workers are for synchronous training: use server.staleness = 0.");
  if (!(options.compensation >= 0 && options.compensation <= 1e6))
    refuse("server.compensation = " + number_text(options.compensation),
           "Use 0 (off), or a number such as 0.04.");
  check_replicas(options.replicas, servers);
  if (options.compensation > 0 && options.staleness == 0)
    refuse("server.compensation with server.staleness = 0, where no gradient is late",
           "Leave it out.");
  if (options.compensation > 0 && options.prediction)
    refuse("server.compensation with server.prediction, which both repair a late gradient",
           "Set server.prediction = false, or leave the compensation out.");
}

}  // namespace trireme::inline v0
