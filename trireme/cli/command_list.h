// The list of commands (commands.inc), as values. A build without LibTorch declares those of cli/
// alone; cli/torch declares all.
#pragma once

#include <string>
#include <vector>

#include "trireme/cli/program.h"

namespace trireme::inline v0::cli {

struct ListedCommand {
  std::string words;          // "show gossip"
  void (*declare)(Command&);  // nullptr: the program lacks it
  bool needs_libtorch = false;
  bool light = false;  // runs where LibTorch is not loaded
};

/// The list; commands that need LibTorch have no `declare`.
std::vector<ListedCommand> listed_commands();

/// Adds the commands to the program. Those that it lacks refuse with a sentence.
void add_commands(Program& program, const std::vector<ListedCommand>& list);

/// The whole program `trireme` in a build without LibTorch.
int run_without_libtorch(int argc, char** argv);

}  // namespace trireme::inline v0::cli
