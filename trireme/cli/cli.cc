#include "trireme/cli/cli.h"

#include <cstdlib>

#include "trireme/cli/command.h"
#include "trireme/cli/start_ranks.h"
#include "trireme/job/terminate.h"
#include "trireme/train/trainer.h"

namespace trireme::inline v0::cli {

int run(int argc, char** argv, const std::string& name) {
  // A rank that `train` started. Its Job reports uncaught exceptions, so catch nothing here.
  if (const char* spec = std::getenv(kWorkerVariable)) {
    job::prepare_process();
    return train::run_training(argc, argv, train::WorkerSpec::from_text(spec));
  }
  const command::AddCommand commands[] = {add_train,           add_plan,
                                          add_generate,        add_eval,
                                          add_inspect,         add_doctor,
                                          command::add_show,   add_show_zero3,
                                          add_show_steps,      command::add_verify,
                                          command::add_bench,  command::add_launch,
                                          command::add_compare};
  return command::run(argc, argv, name, "Trireme trains neural networks on many processors.",
                      "Start here:\n  trireme train configs/gpt-nano.toml --ranks 2", commands);
}

}  // namespace trireme::inline v0::cli
