// Which server has which part of a configuration's model, as in training (ps::ServedModel).
#pragma once

#include <string>

#include "trireme/show/server/server_layout.h"
#include "trireme/train/config/schema.h"

namespace trireme::inline v0::cli {

/// Builds one block after the other to learn the sizes of its parameters. `name`: for people.
show::ServerLayout served_layout(const train::Settings& settings, const std::string& name,
                                 int servers);

}  // namespace trireme::inline v0::cli
