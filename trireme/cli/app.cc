#include "trireme/cli/app.h"

#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/cli/cli.h"

namespace trireme {
inline namespace v0 {

int App::run(int argc, char** argv) const {
  train::ModelRegistry registry(name_);
  try {
    for (const Own& own : models_) registry.add(own.name, own.keys, own.make);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.exit_code();
  }
  return cli::run(argc, argv, registry);
}

}  // namespace v0
}  // namespace trireme
