#include "trireme/command/described.h"

#include <CLI/CLI.hpp>
#include <cctype>

#include "trireme/command/command.h"

namespace trireme::inline v0::command {
namespace {

DescribedOption described(const CLI::Option& option, const Invocation& invocation) {
  DescribedOption out{.about = option.get_description(), .fallback = option.get_default_str()};
  if (option.nonpositional()) {
    for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
    for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
    if (option.get_type_size() != 0) out.value = option.get_type_name();
  } else {
    out.names = {option.get_name(true, false)};
    out.value = option.get_type_name();
  }
  // "INT:at least 1": the text that a check adds is only for help.
  out.value = out.value.substr(0, out.value.find(':'));
  out.many = option.get_expected_max() > 1;
  if (const auto words = invocation.words.find(&option); words != invocation.words.end())
    out.words = words->second;
  out.files = out.words.empty() && out.value == "TEXT";
  return out;
}

}  // namespace

DescribedCommand describe_commands(const CLI::App& app, const Invocation& invocation) {
  DescribedCommand out{
      .name = app.get_name(), .about = app.get_description(), .footer = app.get_footer()};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    (option->nonpositional() ? out.options : out.positionals)
        .push_back(described(*option, invocation));
  }
  for (const CLI::App* below : app.get_subcommands({}))
    if (!below->get_group().empty()) out.commands.push_back(describe_commands(*below, invocation));
  return out;
}

std::string shell_identifier(const std::string& name) {
  std::string out = "_";
  for (const char c : name) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return out;
}

}  // namespace trireme::inline v0::command
