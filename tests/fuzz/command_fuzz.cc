// Any command line is parsed, or refused as wrong usage; nothing is run. The input's lines are the
// words. A byte below 0x20 at the start of a word stands for the name of an option or command, so
// that most lines get further than the first word.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/command/command.h"
#include "trireme/command/parse.h"

namespace {

using namespace trireme;

constexpr std::array<std::string_view, 31> kNames = {
    "show",   "verify",  "bench",     "launch",    "compare", "comm",     "scale",  "all-reduce",
    "ring",   "--ranks", "--sizes",   "--link",    "--json",  "--help",   "-n",     "--",
    "-np",    "--host",  "schedule",  "partition", "gossip",  "--hosts",  "--tune", "--version",
    "--seed", "--html",  "--seconds", "--seeds",   "--bind",  "--stages", "--out"};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words = {"trireme"};
  while (!text.empty() && words.size() < 40) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    std::erase(word, '\0');
    if (!word.empty() && static_cast<unsigned char>(word[0]) < 0x20) {
      const auto name = static_cast<std::size_t>(word[0]) % kNames.size();
      word.replace(0, 1, kNames[name]);
    }
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> words = words_of({reinterpret_cast<const char*>(data), size});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  CLI::App app("fuzz", "trireme");
  app.require_subcommand(1);
  app.set_version_flag("--version", "0");
  command::Invocation invocation{static_cast<int>(words.size()), arguments.data(), nullptr};
  for (const command::AddCommand& add :
       {command::AddCommand(command::add_show), command::AddCommand(command::add_verify),
        command::AddCommand(command::add_bench), command::AddCommand(command::add_launch),
        command::AddCommand(command::add_compare)}) {
    add(app, invocation);
  }
  const std::optional<int> code = command::parse(app, invocation);
  if (code && *code != 0 && *code != static_cast<int>(ExitCode::Usage)) std::abort();
  if (!code && !invocation.action) std::abort();
  return 0;
}
