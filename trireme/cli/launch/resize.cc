// trireme resize: tells an elastic job how many ranks to have.
#include <cstdio>
#include <filesystem>
#include <string>

#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/files.h"
#include "trireme/cli/program.h"
#include "trireme/observe/folder_lock.h"

namespace trireme::inline v0::cli {
namespace {

struct ResizeOptions {
  std::string run;
  int ranks = 0;
};

int resize_command(const ResizeOptions& options) {
  const std::filesystem::path run = options.run;
  std::error_code none;
  if (!std::filesystem::exists(run / "config.toml", none))
    refuse("resize", options.run + " is not the folder of a run: it has no config.toml",
           "Give the folder that `trireme train --elastic` printed.");
  // Without a job, the file would count when the run is resumed.
  if (!observe::is_locked(options.run))
    refuse("resize", "no job trains in " + options.run + " now",
           "Start one by `trireme train --elastic MIN:MAX`; a run that has "
           "ended takes its number of ranks from --ranks.");
  // The launcher of an elastic job makes this file and reads it.
  const std::filesystem::path file = run / "wanted_ranks";
  if (!std::filesystem::exists(file, none))
    refuse("resize", "the job in " + options.run + " has a fixed number of ranks",
           "Stop it and go on by `trireme train --resume RUN --elastic MIN:MAX`; under `trireme "
           "coordinator` start or stop processes instead.");
  write_file(file.string() + ".new", std::to_string(options.ranks) + "\n", "resize");
  std::filesystem::rename(file.string() + ".new", file);
  std::printf("asked the job in %s for %s; its launcher says what it does\n", options.run.c_str(),
              counted(options.ranks, "rank").c_str());
  return 0;
}

}  // namespace

void declare_resize(Command& command) {
  auto& options = command.keep<ResizeOptions>();
  command.about("Change the number of ranks of an elastic training while it runs")
      .footer(
          "Example:\n  trireme resize runs/gpt-nano 4\n"
          "The training was started by `trireme train --elastic 1:4`; see docs/elastic.md.");
  command.option("RUN", options.run, "Folder that train printed").required();
  command.option("RANKS", options.ranks, "The number of ranks that it shall have")
      .between(1, kMostProcesses)
      .required();
  command.run([&] { return resize_command(options); });
}

}  // namespace trireme::inline v0::cli
