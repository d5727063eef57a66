// Settings: what the workers of a job agree on with its servers. The first worker that attaches to
// a server decides; the others must have the same. A value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/kernel/optimizers/optimizers.h"
#include "trireme/ps/served_model.h"
#include "trireme/sync/options.h"

namespace trireme::inline v0::ps {

/// ConfigError unless each shard can have `replicas` copies.
void check_replicas(int replicas, int servers);
/// ConfigError, with the reason, unless the numbers are valid together.
void check_server_options(const ServerOptions& options, int workers, int servers);
/// Whether servers answer pushes with predicted weights: if gradients may be late, with momentum.
bool predicts(const ServerOptions& server, const OptimizerOptions& optimizer);

struct Settings {
  ServedModel model;
  OptimizerOptions optimizer;
  int workers = 1;
  ServerOptions server = {};
  bool elastic = false;  // if a synchronous worker is lost in a step, the others repeat it

  std::string to_text() const;
  /// ConfigError for a text of another kind.
  static Settings from_text(std::string_view text);
  /// ConfigError with the reason, unless the numbers are valid together.
  void check() const;
  /// A sentence on the first difference of a worker's settings; empty: none.
  std::string difference(const Settings& workers) const;
};

}  // namespace trireme::inline v0::ps
