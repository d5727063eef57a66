#include "trireme/cli/torch/app.h"

#include <cstdio>

#include "trireme/base/config.h"
#include "trireme/base/error.h"
#include "trireme/cli/torch/cli.h"
#include "trireme/train/model_family.h"

namespace trireme::inline v0 {

int App::run(int argc, char** argv) const {
  config::name_program(name_);
  try {
    for (const auto* list : {&parts_, &models_})
      for (const auto& registers : *list) registers();
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.exit_code();
  }
  if (!first_model_.empty()) train::choose_default_model(first_model_);
  return cli::run(argc, argv, name_);
}

}  // namespace trireme::inline v0
