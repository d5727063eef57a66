// The part that `train` and `plan` share: options, the checked configuration, corpus and plan.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/cli/command.h"
#include "trireme/input/shared_corpus.h"
#include "trireme/plan/training_plan.h"
#include "trireme/train/schema.h"

namespace trireme {
inline namespace v0 {
namespace cli {

struct TrainingJobOptions {
  std::string config, name;  // name: of the run; empty = the configuration's file name
  int ranks = 1;
  bool ranks_given = false;
  int ranks_here = 0;        // on this host; 0: all
  bool under_mpirun = true;  // `plan` does not know how `train` will be started
  std::string transport, algorithm, link, data;
  std::vector<std::string> set;
};
void add_training_options(CLI::App& command, Invocation& invocation, TrainingJobOptions& options);

struct TrainingJob {
  config::Config config;
  plan::TrainingPlan plan;
  std::shared_ptr<const input::SharedCorpus> corpus;
  bool writes_text = false;
  std::string device_note;  // a line for people; empty: none
};
/// What may change the configuration once it and the data are known (--fit).
using Refine = std::function<void(config::Config& config, const train::Settings& settings,
                                  const input::Corpus& corpus)>;
/// Reads and checks everything that can be wrong before a start. Throws ConfigError.
TrainingJob prepare(const TrainingJobOptions& options, const Refine& refine = {});

}  // namespace cli
}  // namespace v0
}  // namespace trireme
