// Parses optimizer.groups: "match=*.bias weight_decay=0; match=embed.* learning_rate=0.5".
#pragma once

#include <string>
#include <vector>

#include "trireme/optim/optimizer.h"

namespace trireme::inline v0::train {

/// The groups in the text's order; an empty text has none. `learning_rate` is a factor. Throws
/// ConfigError naming the wrong entry.
std::vector<ParameterGroup> parse_groups(const std::string& text);

}  // namespace trireme::inline v0::train
