#include "trireme/cli/torch/cli.h"

#include <cstdlib>

#include "trireme/cli/command_list.h"
#include "trireme/cli/torch/start_ranks.h"
#include "trireme/job/terminate.h"

namespace trireme::inline v0::cli {

// The files of this folder define them.
Declare declare_train, declare_plan, declare_generate, declare_eval, declare_convert,
    declare_doctor, declare_show_server, declare_show_zero3, declare_show_overlap,
    declare_show_zero1, declare_show_tensor, declare_show_context, declare_show_expert,
    declare_bench_server;

int run(int argc, char** argv, const std::string& name) {
  // A process that `train` started.
  if (const char* spec = std::getenv(kWorkerVariable)) {
    job::prepare_process();
    return run_process(rendezvous::resolve_environment().role, argc, argv,
                       train::WorkerSpec::from_text(spec));
  }
  Program program(argc, argv, name, "Trireme trains neural networks on many processors.",
                  "Start here:\n  trireme train configs/gpt-nano.toml --ranks 2");
  add_commands(program, listed_commands({{"train", declare_train},
                                         {"plan", declare_plan},
                                         {"generate", declare_generate},
                                         {"eval", declare_eval},
                                         {"convert", declare_convert},
                                         {"doctor", declare_doctor},
                                         {"show server", declare_show_server},
                                         {"show zero3", declare_show_zero3},
                                         {"show overlap", declare_show_overlap},
                                         {"show zero1", declare_show_zero1},
                                         {"show tensor", declare_show_tensor},
                                         {"show context", declare_show_context},
                                         {"show expert", declare_show_expert},
                                         {"bench server", declare_bench_server}}));
  return program.run();
}

}  // namespace trireme::inline v0::cli
