#include "trireme/ps/settings.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/optim/optimizer.h"
#include "trireme/ps/worker/optimizer_text.h"

namespace trireme::inline v0::ps {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "parameter server", .advice = advice});
}

}  // namespace

bool predicts(const ServerOptions& server, const OptimizerOptions& optimizer) {
  return server.prediction && server.staleness != 0 && optim::momentum_of(optimizer) > 0;
}

std::string Settings::to_text() const {
  return nlohmann::json{{"model", model.to_text()},
                        {"optimizer", ps::to_text(optimizer)},
                        {"workers", workers},
                        {"staleness", server.staleness},
                        {"backup", server.backup},
                        {"compensation", server.compensation},
                        {"prediction", server.prediction},
                        {"replicas", server.replicas},
                        {"elastic", elastic}}
      .dump();
}

Settings Settings::from_text(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    Settings settings{.model = ServedModel::from_text(json.at("model").get<std::string>()),
                      .optimizer = optimizer_from_text(json.at("optimizer").get<std::string>()),
                      .workers = json.at("workers"),
                      .server = {.staleness = json.at("staleness"),
                                 .backup = json.at("backup"),
                                 .compensation = json.at("compensation"),
                                 .prediction = json.at("prediction"),
                                 .replicas = json.at("replicas")},
                      .elastic = json.at("elastic")};
    settings.check();
    return settings;
  } catch (const nlohmann::json::exception&) {
    refuse("the settings that a worker sent cannot be read",
           "Run the same version of Trireme in all processes.");
  }
}

void Settings::check() const {
  require_elementwise(optim::name_of(optimizer));
  check_server_options(server, workers, model.servers());
}

std::string Settings::difference(const Settings& theirs) const {
  if (std::string text = model.difference(theirs.model); !text.empty()) return text;
  const auto differ = [](const std::string& what, const std::string& their,
                         const std::string& own) {
    return "its " + what + " is " + their + ", the server's is " + own;
  };
  if (ps::to_text(optimizer) != ps::to_text(theirs.optimizer))
    return differ("optimizer", ps::to_text(theirs.optimizer), ps::to_text(optimizer));
  for (const auto& [name, their, own] :
       {std::tuple{"number of workers", theirs.workers, workers},
        {"server.staleness", static_cast<int>(theirs.server.staleness),
         static_cast<int>(server.staleness)},
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

}  // namespace trireme::inline v0::ps
