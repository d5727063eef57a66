#include <string_view>

#include "trireme/cli/help/described.h"

// The script walks the words before the cursor: the name of a command goes one command deeper, an
// option that takes a value consumes the next word, and everything else is a positional argument.
// Then it offers what may stand at the cursor. %N is the program's name, %F a prefix for functions.
namespace trireme::inline v0::cli {
namespace {

constexpr std::string_view kScript =
    R"(# Completion of %N for bash: source this file, or install it as
# share/bash-completion/completions/%N. Written by `%N completion bash`.
%F() {
  local current=${COMP_WORDS[COMP_CWORD]} place='%N' taking= number=0 i word
  local commands options valued words files
  COMPREPLY=()
  %F_place "$place"
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == -- ]]; then   # another program's command line follows
      if declare -F _command_offset >/dev/null; then
        _command_offset $((i + 1))
      else
        compopt -o default 2>/dev/null
      fi
      return
    elif [[ $word == = || $valued == *" $word "* ]]; then   # "--ranks 2", "--ranks=2"
      ((++i))
      [[ ${COMP_WORDS[i]} == = && $i -lt $COMP_CWORD ]] && ((++i))
      [[ $i -ge $COMP_CWORD ]] && taking=$word
    elif [[ $commands == *" $word "* && $number == 0 ]]; then
      place+=" $word"
      %F_place "$place"
    elif [[ $word != -* ]]; then
      ((++number))
    fi
  done
  [[ $current == = ]] && current=
  words= files=
  if [[ -n $taking ]]; then
    %F_value "$place $taking"
  elif [[ $current == -* ]]; then
    words=$options
  else
    %F_value "$place $number"
    [[ $number == 0 ]] && words+=$commands
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ -n $files && ${#COMPREPLY[@]} == 0 ]]; then
    compopt -o default 2>/dev/null
  elif [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then   # a key; its value comes next
    compopt -o nospace 2>/dev/null
  fi
}
)";

// With a blank before and after each word, so that the script matches whole words.
std::string padded(const std::vector<std::string>& words) {
  std::string out = " ";
  for (const std::string& word : words) out += word + " ";
  return out;
}

// Writes the subcommands and options that a command accepts.
void add_places(const DescribedCommand& command, const std::string& path, std::string& out) {
  std::vector<std::string> commands, options, valued;
  for (const DescribedCommand& below : command.commands) commands.push_back(below.name);
  for (const DescribedOption& option : command.options) {
    for (const std::string& name : option.names) {
      if (name.starts_with("--")) options.push_back(name);
      if (!option.value.empty()) valued.push_back(name);
    }
  }
  out += "    '" + path + "')\n      commands='" + padded(commands) + "'\n      options='" +
         padded(options) + "'\n      valued='" + padded(valued) + "' ;;\n";
  for (const DescribedCommand& below : command.commands)
    add_places(below, path + " " + below.name, out);
}

void add_value(const DescribedOption& option, const std::string& pattern, std::string& out) {
  if (!option.words.empty()) {
    out += "    " + pattern + ") words='" + padded(option.words) + "' ;;\n";
  } else if (option.files) {
    out += "    " + pattern + ") files=yes ;;\n";
  }
}

// Writes the values that options and positional arguments accept.
void add_values(const DescribedCommand& command, const std::string& path, std::string& out) {
  for (const DescribedOption& option : command.options) {
    std::string pattern;
    for (const std::string& name : option.names)
      pattern += (pattern.empty() ? "'" : " | '") + path + " " + name + "'";
    if (!option.value.empty()) add_value(option, pattern, out);
  }
  for (std::size_t i = 0; i < command.positionals.size(); ++i) {
    const DescribedOption& one = command.positionals[i];
    add_value(one, "'" + path + " '" + (one.many ? "[0-9]*" : std::to_string(i)), out);
  }
  for (const DescribedCommand& below : command.commands)
    add_values(below, path + " " + below.name, out);
}

std::string filled(std::string_view text, const std::string& name) {
  const std::string function = shell_identifier(name);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool marked = text[i] == '%' && i + 1 < text.size();
    if (marked && (text[i + 1] == 'N' || text[i + 1] == 'F')) {
      out += text[++i] == 'N' ? name : function;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string bash_completion(const DescribedCommand& program) {
  const std::string function = shell_identifier(program.name);
  std::string out = filled(kScript, program.name);
  out += function + "_place() {\n  case $1 in\n";
  add_places(program, program.name, out);
  out += "  esac\n}\n" + function + "_value() {\n  case $1 in\n";
  add_values(program, program.name, out);
  return out + "  esac\n}\ncomplete -F " + function + " " + program.name + "\n";
}

}  // namespace trireme::inline v0::cli
