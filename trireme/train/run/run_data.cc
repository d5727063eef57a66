#include "trireme/train/run/run_data.h"

#include "trireme/train/run/run_files.h"

namespace trireme::inline v0::train {
namespace {

std::shared_ptr<const input::SharedCorpus> bytes_of(const Settings& settings,
                                                    const WorkerSpec& spec) {
  if (spec.corpus >= 0) return input::SharedCorpus::open(spec.corpus);
  return input::SharedCorpus::make(settings.model.data->load(settings.data_path));
}

}  // namespace

Settings read_settings(const WorkerSpec& spec) {
  return Settings(read_config(RunFiles(spec.folder).config()));
}

RunData::RunData(const Settings& settings, const WorkerSpec& spec)
    : corpus(bytes_of(settings, spec)),
      train(settings.model.data->train(corpus->train(), corpus)),
      validation(settings.model.data->validation(corpus->validation(), corpus)) {}

}  // namespace trireme::inline v0::train
