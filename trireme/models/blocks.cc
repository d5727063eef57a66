#include "trireme/models/block.h"

#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0::models {

Blocks& Blocks::add_block(BlockSpec spec) {
  for (const auto& known : specs_) {
    if (known.name != spec.name) continue;
    throw ConfigError("two blocks are called '" + spec.name + "'",
                      {.operation = "model", .advice = "Give every block a name of its own."});
  }
  if (spec.reads.empty()) {
    spec.reads = {specs_.empty() ? std::string("tokens") : specs_.back().writes};
  }
  if (spec.writes.empty()) spec.writes = spec.name;
  specs_.push_back(std::move(spec));
  return *this;
}

Blocks& Blocks::tie(std::string alias, std::string owner) {
  ties_.push_back({std::move(alias), std::move(owner)});
  return *this;
}

}  // namespace trireme::inline v0::models
