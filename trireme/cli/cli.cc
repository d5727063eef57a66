#include "trireme/cli/cli.h"

#include <cstdlib>

#include "trireme/cli/command.h"
#include "trireme/cli/start_ranks.h"
#include "trireme/train/trainer.h"

namespace trireme {
inline namespace v0 {
namespace cli {

int run(int argc, char** argv) { return run(argc, argv, train::own_models()); }

int run(int argc, char** argv, const ModelRegistry& models) {
  // A rank that train started: its Job reports whatever is thrown, so nothing is caught here.
  if (const char* spec = std::getenv(kWorkerVariable)) {
    return train::run_training(argc, argv, train::WorkerSpec::from_text(spec), models);
  }
  const auto with_models = [&](auto add) -> command::AddCommand {
    return [add, &models](CLI::App& app, Invocation& own) { add(app, own, models); };
  };
  const command::AddCommand commands[] = {
      with_models(add_train), with_models(add_plan), with_models(add_generate),
      with_models(add_eval),  add_inspect,           add_doctor,
      command::add_show,      command::add_verify,   command::add_bench,
      command::add_launch,    command::add_compare};
  return command::run(argc, argv, models.program(),
                      "Trireme trains neural networks on many processors.",
                      "Start here:\n  trireme train configs/gpt-nano.toml --ranks 2", commands);
}

}  // namespace cli
}  // namespace v0
}  // namespace trireme
