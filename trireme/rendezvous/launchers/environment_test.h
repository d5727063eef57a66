// Variables of launchers, for tests of what they mean.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::rendezvous {

using Variables = std::map<std::string, std::string>;

inline Getenv from(Variables variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

inline std::string refusal_of(const Variables& variables) {
  try {
    resolve_environment(from(variables));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

inline Variables joined(Variables one, const Variables& other) {
  one.insert(other.begin(), other.end());
  return one;
}

// As the training operator writes it for a worker of a TFJob with a chief and two workers.
inline Variables tf_config(const std::string& task,
                           const std::string& cluster = R"("chief":["mnist-chief-0.ns.svc:2222"],)"
                                                        R"("worker":["mnist-worker-0.ns.svc:2222",)"
                                                        R"("mnist-worker-1.ns.svc:2222"])") {
  return {{"TF_CONFIG",
           R"({"cluster":{)" + cluster + R"(},"task":)" + task + R"(,"environment":"cloud"})"}};
}

}  // namespace trireme::rendezvous
