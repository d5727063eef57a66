#include "tests/chaos/shell.h"

#include <cstdlib>

#include "trireme/launch/launch.h"
#include "trireme/testing/process_bodies.h"

TRIREME_PROCESS(launches) {
  trireme::launch::LaunchOptions options;
  options.ranks = std::atoi(argv[1]);
  options.command.assign(argv + 2, argv + argc);
  options.bind = trireme::launch::Bind::None;
  return trireme::launch::run(options);
}
