// trireme completion: prints completion scripts for shells, and the man page.
#include <cctype>
#include <cstdio>
#include <string>

#include "trireme/cli/help/described.h"
#include "trireme/cli/program.h"

namespace trireme::inline v0::cli {

std::string shell_identifier(const std::string& name) {
  std::string out = "_";
  for (const char c : name) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return out;
}

void declare_completion(Command& command) {
  auto& kind = command.keep<std::string>();
  Program& program = command.program();
  command.about("Print completion for bash, zsh or fish, or the man page")
      .footer("Example:\n  trireme completion bash\nTry it with: source <(" + program.name() +
              " completion bash)");
  command.option("SHELL", kind, "bash, zsh, fish; or man: the man page")
      .required()
      .one_of({"bash", "zsh", "fish", "man"});
  command.run([&] {
    const DescribedCommand described = program.describe();
    const std::string text = kind == "bash"   ? bash_completion(described)
                             : kind == "zsh"  ? zsh_completion(described)
                             : kind == "fish" ? fish_completion(described)
                                              : man_page(described);
    std::fputs(text.c_str(), stdout);
    return 0;
  });
}

}  // namespace trireme::inline v0::cli
