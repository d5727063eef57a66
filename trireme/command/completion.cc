// trireme completion: prints completion scripts for shells, and the man page.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "trireme/command/command.h"
#include "trireme/command/described.h"
#include "trireme/command/option_checks.h"

namespace trireme::inline v0::command {

void add_completion(CLI::App& app, Invocation& invocation) {
  const std::vector<std::string> kinds = {"bash", "zsh", "fish", "man"};
  auto kind = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print completion for bash, zsh or fish, or the man page");
  invocation.words[command->add_option("SHELL", *kind, "bash, zsh, fish; or man: the man page")
                       ->required()
                       ->check(one_of(kinds))] = kinds;
  command->footer("Example:\n  trireme completion bash\nTry it with: source <(" + app.get_name() +
                  " completion bash)");
  command->callback([kind, &app, &invocation] {
    invocation.action = [kind, &app, &invocation] {
      const DescribedCommand program = describe_commands(app, invocation);
      const std::string text = *kind == "bash"   ? bash_completion(program)
                               : *kind == "zsh"  ? zsh_completion(program)
                               : *kind == "fish" ? fish_completion(program)
                                                 : man_page(program);
      std::fputs(text.c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace trireme::inline v0::command
