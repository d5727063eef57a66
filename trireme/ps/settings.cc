#include "trireme/ps/settings.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/ps/optimizer_text.h"

namespace trireme::inline v0::ps {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "parameter server", .advice = advice});
}

}  // namespace

std::string Settings::to_text() const {
  return nlohmann::json{{"model", model.to_text()}, {"optimizer", ps::to_text(optimizer)},
                        {"workers", workers},       {"staleness", staleness},
                        {"backup", backup},         {"compensation", compensation}}
      .dump();
}

Settings Settings::from_text(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    Settings settings{.model = ServedModel::from_text(json.at("model").get<std::string>()),
                      .optimizer = optimizer_from_text(json.at("optimizer").get<std::string>()),
                      .workers = json.at("workers"),
                      .staleness = json.at("staleness"),
                      .backup = json.at("backup"),
                      .compensation = json.at("compensation")};
    settings.check();
    return settings;
  } catch (const nlohmann::json::exception&) {
    refuse("the settings that a worker sent cannot be read",
           "Run the same version of Trireme in all processes.");
  }
}

void Settings::check() const {
  require_elementwise(optim::name_of(optimizer));
  if (workers < 1) refuse("a parameter server for no workers", "Start at least one worker.");
  if (staleness < -1)
    refuse("server.staleness = " + std::to_string(staleness),
           "Use 0 (synchronous), a bound of 1 or more, or -1 (no bound).");
  if (backup < 0 || backup >= workers)
    refuse("server.backup = " + std::to_string(backup) + " with " + counted(workers, "worker"),
           "Leave at least one worker whose gradient counts.");
  if (backup > 0 && staleness != 0)
    refuse("server.backup = " + std::to_string(backup) +
               " with server.staleness = " + std::to_string(staleness),
           "Backup workers are for synchronous training: use server.staleness = 0.");
  if (!(compensation >= 0 && compensation <= 1e6))
    refuse("server.compensation = " + number_text(compensation), "Use 0 (off), or such as 0.04.");
  if (compensation > 0 && staleness == 0)
    refuse("server.compensation with server.staleness = 0, where no gradient is late",
           "Leave it out.");
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
        {"server.staleness", static_cast<int>(theirs.staleness), static_cast<int>(staleness)},
        {"server.backup", theirs.backup, backup}})
    if (their != own) return differ(name, std::to_string(their), std::to_string(own));
  if (theirs.compensation != compensation)
    return differ("server.compensation", number_text(theirs.compensation),
                  number_text(compensation));
  return {};
}

}  // namespace trireme::inline v0::ps
