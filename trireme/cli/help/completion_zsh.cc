#include "trireme/base/joined.h"
#include "trireme/cli/help/described.h"

namespace trireme::inline v0::cli {
namespace {

// Escapes text for single quotes; `special` characters have a meaning to _arguments and _describe.
std::string quoted(const std::string& text, const std::string& special) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '\\' || special.find(c) != std::string::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

// The value that _arguments offers: words, files, or nothing.
std::string action(const DescribedOption& option) {
  if (option.files) return "_files";
  if (option.words.empty()) return " ";
  const std::string words = joined(option.words, {}, " ");
  // A configuration key ends in "=", and its value follows without a blank.
  const bool keys = option.words.front().ends_with('=');
  return keys ? "{compadd -S \"\" -- " + words + "}" : "(" + words + ")";
}

std::string line_of(const DescribedOption& option) {
  const std::string names = joined(option.names, {}, ",");
  std::string out = option.many ? "'*'" : "'(" + joined(option.names, {}, " ") + ")'";
  out += option.names.size() > 1 ? "{" + names + "}" : "'" + names + "'";
  out += "'[" + quoted(option.about, "[]:") + "]";
  if (!option.value.empty()) out += ":" + option.value + ":" + quoted(action(option), "");
  return out + "'";
}

// Writes one function per command; a command with subcommands asks for their names first.
void add_function(const DescribedCommand& command, const std::string& function, std::string& out) {
  std::string body = "  _arguments -C -s";
  for (const DescribedOption& option : command.options) body += " \\\n    " + line_of(option);
  const bool deeper = !command.commands.empty();
  if (deeper) body += " \\\n    '1: :->first' '*:: :->rest'";
  for (std::size_t i = 0; i < command.positionals.size() && !deeper; ++i) {
    const DescribedOption& one = command.positionals[i];
    body += " \\\n    '" + (one.many ? "*" : std::to_string(i + 1)) + ":" + one.names.front() +
            ":" + quoted(action(one), "") + "'";
  }
  if (deeper) {
    std::string names, cases, first,
        later;  // words of the first positional argument, of the others
    for (const DescribedCommand& below : command.commands) {
      names += "\n        '" + below.name + ":" + quoted(below.about, "") + "'";
      cases += "        " + below.name + ") " + function + "_" +
               shell_identifier(below.name).substr(1) + " ;;\n";
    }
    for (std::size_t i = 0; i < command.positionals.size(); ++i)
      for (const std::string& word : command.positionals[i].words)
        (i == 0 ? first : later) += " " + word;
    body += "\n  case $state in\n    first)\n      local -a commands=(" + names +
            ")\n      _describe command commands\n";
    if (!first.empty()) body += "      compadd --" + first + "\n";
    body += "      ;;\n    rest)\n      case $line[1] in\n" + cases;
    if (!later.empty()) body += "        *) compadd --" + later + " ;;\n";
    body += "      esac\n      ;;\n  esac";
  }
  out += function + "() {\n  local curcontext=\"$curcontext\" state\n  local -a line\n" + body +
         "\n}\n";
  for (const DescribedCommand& below : command.commands)
    add_function(below, function + "_" + shell_identifier(below.name).substr(1), out);
}

}  // namespace

std::string zsh_completion(const DescribedCommand& program) {
  const std::string function = shell_identifier(program.name);
  std::string out = "#compdef " + program.name + "\n# Completion of " + program.name +
                    " for zsh: install it as _" + program.name +
                    " in a folder of $fpath. Written by `" + program.name + " completion zsh`.\n";
  add_function(program, function, out);
  // Loaded by compinit, this file is the function's body; sourced, it registers the function.
  return out + "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  " + function +
         " \"$@\"\nelse\n  compdef " + function + " " + program.name + "\nfi\n";
}

}  // namespace trireme::inline v0::cli
