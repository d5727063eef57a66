#include "trireme/ps/worker/optimizer_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/optim/optimizer.h"

namespace trireme::inline v0 {

void to_json(nlohmann::json& json, const ParameterGroup& group) {
  json = {{"match", group.match}, {"rate_factor", group.rate_factor}};
  if (group.weight_decay) json["weight_decay"] = *group.weight_decay;
}

void from_json(const nlohmann::json& json, ParameterGroup& group) {
  group = {.match = json.at("match"), .weight_decay = {}, .rate_factor = json.at("rate_factor")};
  if (json.contains("weight_decay")) group.weight_decay = json.at("weight_decay").get<double>();
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OptimizerKeys, learning_rate, weight_decay, beta1, beta2,
                                   epsilon, momentum, dampening, nesterov, beta2_decay, update_clip,
                                   smallest_scale, factored_epsilon, l1, initial_accumulator,
                                   groups)

namespace ps {

std::string to_text(const OptimizerOptions& options) {
  return nlohmann::json{{"name", optim::name_of(options)}, {"keys", optim::keys_of(options)}}
      .dump();
}

OptimizerOptions optimizer_from_text(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    const std::string name = json.at("name");
    const std::vector<std::string> known = optim::optimizer_names();
    if (std::find(known.begin(), known.end(), name) != known.end())
      return optim::optimizer_of(name, json.at("keys").get<OptimizerKeys>());
  } catch (const nlohmann::json::exception&) {
  }
  throw ConfigError("the optimizer that a worker sent cannot be read",
                    {.operation = "parameter server",
                     .advice = "Run the same version of Trireme in all processes."});
}

std::string differ(const std::string& what, const std::string& worker, const std::string& server) {
  return "its " + what + " is " + worker + ", the server's is " + server;
}

std::string difference(const OptimizerOptions& server, const OptimizerOptions& worker) {
  if (server.index() != worker.index())
    return differ("optimizer", std::string(optim::name_of(worker)),
                  std::string(optim::name_of(server)));
  const nlohmann::json own = optim::keys_of(server), their = optim::keys_of(worker);
  for (const auto& [key, value] : their.items())
    if (value != own.at(key))
      return differ(std::string(optim::name_of(worker)) + "'s " + key, value.dump(),
                    own.at(key).dump());
  return {};
}

void require_elementwise(std::string_view optimizer) {
  if (!optim::sums_over_parameters(optimizer)) return;
  throw ConfigError(
      std::string(optimizer) +
          " cannot be combined with parallel.sync = \"server\": its steps depend on " +
          "whole parameters, of which a server has a part",
      {.operation = "parameter server",
       .advice = "Use adamw, sgd or another optimizer "
                 "without such sums."});
}

}  // namespace ps
}  // namespace trireme::inline v0
