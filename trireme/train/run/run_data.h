// RunData: the data of a run, as one of its processes reads it; and the settings in its folder.
#pragma once

#include <memory>

#include "trireme/input/shared_corpus.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/config/worker_spec.h"

namespace trireme::inline v0::train {

/// The settings of the run's config.toml.
Settings read_settings(const WorkerSpec& spec);

struct RunData {
  /// If the launcher passed no bytes, this process reads them itself.
  RunData(const Settings& settings, const WorkerSpec& spec);

  std::shared_ptr<const input::SharedCorpus> corpus;
  std::shared_ptr<const Dataset> train, validation;
};

}  // namespace trireme::inline v0::train
