// trireme launch-host: what `trireme launch -H` runs on other hosts. People do not type it.
#include "trireme/cli/command.h"
#include "trireme/launch/hosts/host_messages.h"

namespace trireme::inline v0::cli {

void declare_launch_host(Command& command) {
  command.about("The launcher's part on another host; ssh starts it").hidden();
  command.run([] { return launch::run_host_agent(); });
}

}  // namespace trireme::inline v0::cli
