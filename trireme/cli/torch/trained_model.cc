#include "trireme/cli/torch/trained_model.h"

#include "trireme/base/refuse.h"
#include "trireme/rendezvous/launchers/environment.h"
#include "trireme/train/device.h"
#include "trireme/train/evaluation/forward_model.h"
#include "trireme/train/run/run_folder.h"
#include "trireme/train/training_process.h"

namespace trireme::inline v0::cli {
namespace {

config::Config config_of(const std::string& run) {
  const train::RunFolder folder = train::RunFolder::existing(run);
  if (folder.newest_step() == 0) {
    refuse("load", folder.path() + " holds no checkpoint",
           "Train it until it has written its first checkpoint (checkpoint.every).");
  }
  return train::read_config(folder.config());
}

int set_up(const train::Settings& settings, int argc) {
  rendezvous::ignore_launchers();  // one process suffices
  train::set_up_process(settings);
  return argc;
}

}  // namespace

TrainedModel::TrainedModel(int argc, char** argv, const std::string& run, const std::string& device)
    : config(config_of(run)),
      settings(config),
      job(set_up(settings, argc), argv),
      strategy(job, settings.model.blocks,
               train::forward_options(
                   settings.strategy,
                   train::take_device(device == "auto" && settings.device == "cpu" ? settings.device
                                                                                   : device)),
               settings.optimizer) {
  steps_done = train::load_newest(job, strategy, train::RunFolder::existing(run).checkpoint());
}

}  // namespace trireme::inline v0::cli
