#include "trireme/ps/settings.h"

#include <nlohmann/json.hpp>

#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/optim/optimizer.h"
#include "trireme/ps/worker/optimizer_text.h"

namespace trireme::inline v0 {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ServerOptions, backup, compensation, prediction, replicas)

namespace ps {

void check_replicas(int replicas, int servers) {
  const std::string text = "server.replicas = " + std::to_string(replicas);
  if (replicas < 1)
    refuse("parameter server", text, "Use 1 (no copies), or up to one for each server.");
  if (replicas > servers)
    refuse("parameter server", text + ", but the job has " + counted(servers, "server"),
           "A server has at most one copy of a shard: use more servers, or fewer replicas.");
}

void check_server_options(const ServerOptions& options, int workers, int servers) {
  const std::string staleness = "server.staleness = " + std::to_string(options.bound());
  const std::string backup = "server.backup = " + std::to_string(options.backup);
  if (options.bound() < -1)
    refuse("parameter server", staleness,
           "Use 0 (synchronous), a bound of 1 or more, or -1 (no bound).");
  if (options.backup < 0 || options.backup >= workers)
    refuse("parameter server", backup + ", but the job has " + counted(workers, "worker"),
           "Leave at least one worker whose gradient counts.");
  if (options.backup > 0 && options.bound() != 0)
    refuse("parameter server", backup + " cannot be combined with " + staleness,
           "Backup workers are for synchronous training: use server.staleness = 0.");
  if (!(options.compensation >= 0 && options.compensation <= 1e6))
    refuse("parameter server", "server.compensation = " + number_text(options.compensation),
           "Use 0 (off), or a number such as 0.04.");
  check_replicas(options.replicas, servers);
  if (options.compensation > 0 && options.bound() == 0)
    refuse("parameter server",
           "server.compensation cannot be combined with server.staleness = 0, where no gradient is "
           "late",
           "Leave it out.");
  if (options.compensation > 0 && options.prediction)
    refuse("parameter server",
           "server.compensation cannot be combined with server.prediction: both repair a late "
           "gradient",
           "Set server.prediction = false, or leave the compensation out.");
}

bool predicts(const ServerOptions& server, const OptimizerOptions& optimizer) {
  return server.prediction && server.bound() != 0 && optim::momentum_of(optimizer) > 0;
}

std::string Settings::to_text() const {
  return nlohmann::json{{"model", model.to_text()},    {"optimizer", ps::to_text(optimizer)},
                        {"workers", workers},          {"server", server},
                        {"staleness", server.bound()}, {"elastic", elastic}}
      .dump();
}

Settings Settings::from_text(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    Settings settings{.model = ServedModel::from_text(json.at("model").get<std::string>()),
                      .optimizer = optimizer_from_text(json.at("optimizer").get<std::string>()),
                      .workers = json.at("workers"),
                      .server = json.at("server").get<ServerOptions>(),
                      .elastic = json.at("elastic")};
    settings.server.staleness = json.at("staleness").get<std::int64_t>();
    settings.check();
    return settings;
  } catch (const nlohmann::json::exception&) {
    refuse("parameter server", "the settings that a worker sent cannot be read",
           "Run the same version of Trireme in all processes.");
  }
}

void Settings::check() const {
  require_elementwise(optim::name_of(optimizer));
  check_server_options(server, workers, model.servers());
}

std::string Settings::difference(const Settings& theirs) const {
  if (std::string text = model.difference(theirs.model); !text.empty()) return text;
  if (std::string text = ps::difference(optimizer, theirs.optimizer); !text.empty()) return text;
  for (const auto& [name, their, own] :
       {std::tuple{"number of workers", theirs.workers, workers},
        {"server.staleness", static_cast<int>(theirs.server.bound()),
         static_cast<int>(server.bound())},
        {"server.backup", theirs.server.backup, server.backup},
        {"server.prediction", int{theirs.server.prediction}, int{server.prediction}},
        {"server.replicas", theirs.server.replicas, server.replicas},
        {"elastic mode", int{theirs.elastic}, int{elastic}}})
    if (their != own) return differ(name, std::to_string(their), std::to_string(own));
  if (theirs.server.compensation != server.compensation)
    return differ("server.compensation", number_text(theirs.server.compensation),
                  number_text(server.compensation));
  return {};
}

}  // namespace ps
}  // namespace trireme::inline v0
