#include "trireme/launch/launch.h"

#include <unistd.h>

#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/standard_streams.h"
#include "trireme/launch/output.h"
#include "trireme/launch/supervisor.h"

namespace trireme::inline v0::launch {

LaunchResult launch(const LaunchOptions& options) {
  open_standard_streams();
  return Supervisor(options).run();
}

int run(LaunchOptions options, const Again& again) {
  try {
    LaunchResult result = launch(options);
    for (std::optional<LaunchOptions> next; again && result.failure && (next = again(result));) {
      options = std::move(*next);
      result = launch(options);
    }
    if (!result.last_line.empty()) write_all(STDERR_FILENO, "trireme: " + result.last_line + "\n");
    return result.exit_code;
  } catch (...) {
    const ErrorReport report = describe(std::current_exception());
    write_all(STDERR_FILENO, "trireme: " + report.sentence + "\n");
    return report.exit_code;
  }
}

}  // namespace trireme::inline v0::launch
