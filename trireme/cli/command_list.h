// The list of all commands of `trireme`, as values. A program without LibTorch lacks those of
// cli/torch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/cli/program.h"

namespace trireme::inline v0::cli {

using Declare = void(Command& command);

struct ListedCommand {
  enum class Kind {
    Core,   // in cli/
    Light,  // in cli/; has no use for LibTorch, so the small program runs it (light.h)
    Torch,  // in cli/torch/; needs LibTorch
    Later   // not in this version
  };
  std::string words;  // "show gossip"
  Kind kind = Kind::Core;
  Declare* declare = nullptr;  // nullptr: the program lacks it
};

/// The list in the order of help. `torch`: the commands of cli/torch, if the program has them.
std::vector<ListedCommand> listed_commands(const std::map<std::string, Declare*>& torch = {});

/// Adds the commands to the program. Those that it lacks refuse with a sentence.
void add_commands(Program& program, const std::vector<ListedCommand>& list);

/// The whole program `trireme` in a build without LibTorch.
int run_without_libtorch(int argc, char** argv);

}  // namespace trireme::inline v0::cli
