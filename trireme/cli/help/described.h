// The commands of a program, as declared to the parser, as plain values. Completions and the man
// page are generated from them.
#pragma once

#include <string>
#include <vector>

namespace trireme::inline v0::cli {

struct DescribedOption {
  std::vector<std::string> names;  // "--ranks", "-n"; a positional has one: "CONFIG"
  std::string about;
  std::string value;               // "INT", "TEXT"; empty: a flag
  std::string fallback;            // the default, if help shows it
  std::vector<std::string> words;  // the values it accepts; empty: see files
  bool files = false;              // its value may be a path
  bool many = false;               // it may be given with several values
};

/// Without the commands and options that help leaves out (Program::describe).
struct DescribedCommand {
  std::string name, about, footer;
  std::vector<DescribedOption> options, positionals;
  std::vector<DescribedCommand> commands;
};

/// A valid name for a shell function: "_my_trainer" for "my-trainer".
std::string shell_identifier(const std::string& name);
/// Scripts that a shell sources to complete this program's command line.
std::string bash_completion(const DescribedCommand& program);
std::string zsh_completion(const DescribedCommand& program);
std::string fish_completion(const DescribedCommand& program);
/// The man page trireme(1).
std::string man_page(const DescribedCommand& program);

}  // namespace trireme::inline v0::cli
