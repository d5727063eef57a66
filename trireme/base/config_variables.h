// Environment variables that look like keys of a configuration and are none: refused, as an unknown
// key in a file is. Pure but for environment_names().
#pragma once

#include <string>
#include <vector>

#include "trireme/base/config.h"

namespace trireme {
inline namespace v0 {
namespace config {

/// Names of this process's environment.
std::vector<std::string> environment_names();

/// Throws ConfigError for a name such as TRIREME_TRAIN_STEP, which begins as the keys of a table of
/// `schema` do and is none of them; the sentence names the nearest key. Other names are others'.
void check_variables(const Schema& schema, const std::vector<std::string>& names);

}  // namespace config
}  // namespace v0
}  // namespace trireme
