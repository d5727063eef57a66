// The commands of a program as they declared themselves to the parser, as plain values: what the
// completions and the man page are written from.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trireme {
inline namespace v0 {
namespace command {

struct Invocation;

struct DescribedOption {
  std::vector<std::string> names;  // "--ranks", "-n"; of a positional its one name: "CONFIG"
  std::string about;
  std::string value;               // "INT", "TEXT"; empty: a flag
  std::string fallback;            // the default, where it is shown
  std::vector<std::string> words;  // what it takes; empty: see files
  bool files = false;              // it may well be a path
  bool many = false;               // it may be given with several values
};

struct DescribedCommand {
  std::string name, about, footer;
  std::vector<DescribedOption> options, positionals;
  std::vector<DescribedCommand> commands;
};

/// Commands and options that help leaves out are left out.
DescribedCommand describe_commands(const CLI::App& app, const Invocation& invocation);

/// A name that functions of shells may have: "_my_trainer" of "my-trainer".
std::string shell_identifier(const std::string& name);
/// What a shell sources to complete this program's command line.
std::string bash_completion(const DescribedCommand& program);
std::string zsh_completion(const DescribedCommand& program);
std::string fish_completion(const DescribedCommand& program);
/// trireme(1), for man.
std::string man_page(const DescribedCommand& program);

}  // namespace command
}  // namespace v0
}  // namespace trireme
