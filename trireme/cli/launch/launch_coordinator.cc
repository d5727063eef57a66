// trireme launch-coordinator: the coordinator of `trireme launch --store`. People do not type it.
#include "trireme/cli/command.h"
#include "trireme/launch/coordinator/coordinator_messages.h"

namespace trireme::inline v0::cli {

void declare_launch_coordinator(Command& command) {
  command.about("The launcher's coordinator; it starts it").hidden();
  command.run([] { return launch::run_coordinator_process(); });
}

}  // namespace trireme::inline v0::cli
