// Refuses environment variables that look like configuration keys but are not. Pure, except
// environment_names().
#pragma once

#include <string>
#include <vector>

#include "trireme/base/config/config.h"

namespace trireme::inline v0::config {

/// The names of this process's environment variables.
std::vector<std::string> environment_names();

/// Throws ConfigError for a name such as TRIREME_TRAIN_STEP: it begins like the keys of one of the
/// schema's tables but is not a key. The message names the nearest key. Other names are ignored.
void check_variables(const Schema& schema, const std::vector<std::string>& names);

}  // namespace trireme::inline v0::config
