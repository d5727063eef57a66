// train --fit: finds a layout that fits into the memory that is there, by prediction and by trials
// of two steps, and writes it into the configuration. The bits stay those of the configuration.
#pragma once

#include "trireme/base/config.h"
#include "trireme/input/corpus.h"
#include "trireme/train/schema.h"

namespace trireme {
inline namespace v0 {
namespace cli {

struct FitOptions {
  int ranks = 1;
  bool new_job = true;  // batch.micro may become smaller where nothing fits otherwise
  bool tries = true;    // false: by prediction alone
  bool json = false;
};

/// Prints what was considered, as a table or as "fit" events, and sets parallel.sync,
/// parallel.shard, train.lanes, memory.recompute and perhaps batch.micro. ConfigError where nothing
/// fits. Measures for a moment how fast this machine's matrix products are.
void fit(config::Config& config, const train::Settings& settings, const input::Corpus& corpus,
         const FitOptions& options);

/// Prints what was considered by prediction alone, and chooses nothing: what goes with a refusal.
/// Whether any of it fits. Nothing where parallel.sync decides the bits itself, since no other
/// layout is the same training.
bool show_what_fits(const config::Config& config, const FitOptions& options);

}  // namespace cli
}  // namespace v0
}  // namespace trireme
