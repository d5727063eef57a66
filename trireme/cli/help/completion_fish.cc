#include "trireme/base/joined.h"
#include "trireme/cli/help/described.h"

namespace trireme::inline v0::cli {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// Writes the options and words of a command, for lines that satisfy `condition`, then those of its
// subcommands.
void add_lines(const DescribedCommand& command, const std::string& program,
               const std::string& condition, std::string& out) {
  const std::string below = joined(command.commands, &DescribedCommand::name, " ");
  const std::string seen = "__fish_seen_subcommand_from ";
  const std::string deeper = below.empty() ? "" : "; and not " + seen + below;
  const std::string here = "complete -c " + program + " -n " + quoted(condition + deeper) + " ";
  for (const DescribedCommand& one : command.commands)
    out += here + "-a " + one.name + " -d " + quoted(one.about) + "\n";
  for (const DescribedOption& option : command.options) {
    std::string line = here;
    for (const std::string& name : option.names)
      line += name.starts_with("--") ? "-l " + name.substr(2) + " " : "-s " + name.substr(1) + " ";
    if (!option.value.empty()) line += option.files ? "-r -F " : "-x ";
    if (!option.words.empty()) line += "-a " + quoted(joined(option.words, {}, " ")) + " ";
    out += line + "-d " + quoted(option.about) + "\n";
  }
  for (const DescribedOption& one : command.positionals) {
    if (!one.words.empty()) out += here + "-a " + quoted(joined(one.words, {}, " ")) + "\n";
    if (one.files) out += here + "-F\n";
  }
  for (const DescribedCommand& one : command.commands)
    add_lines(one, program, (condition == "true" ? "" : condition + "; and ") + seen + one.name,
              out);
}

}  // namespace

std::string fish_completion(const DescribedCommand& program) {
  std::string out = "# Completion of " + program.name + " for fish: install it as " + program.name +
                    ".fish in a folder of $fish_complete_path. Written by `" + program.name +
                    " completion fish`.\ncomplete -c " + program.name + " -f\n";
  add_lines(program, program.name, "true", out);
  return out;
}

}  // namespace trireme::inline v0::cli
