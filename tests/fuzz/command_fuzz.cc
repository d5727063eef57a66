// Any command line is parsed, or refused as wrong usage; nothing is run. The input's lines are the
// words. A byte below 0x20 at the start of a word stands for the name of an option or command, so
// that most lines get further than the first word.
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cli/command_list.h"

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
  cli::Program program(static_cast<int>(words.size()), arguments.data(), "trireme", "fuzz", "");
  cli::add_commands(program, cli::listed_commands());
  const cli::Program::Parsed parsed = program.parse();
  if (!parsed.action && parsed.code != 0 && parsed.code != static_cast<int>(ExitCode::Usage))
    std::abort();
  return 0;
}
