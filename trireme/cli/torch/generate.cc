// trireme generate: prints text from a trained run, byte by byte.
#include <csignal>
#include <cstdio>

#include "trireme/base/refuse.h"
#include "trireme/cli/program.h"
#include "trireme/cli/torch/trained_model.h"
#include "trireme/observe/events.h"
#include "trireme/train/evaluation/generate.h"

namespace trireme::inline v0::cli {
namespace {

struct GenerateCommandOptions {
  std::string run, prompt, device = "auto";
  train::GenerateOptions generate;
  bool json = false;
};

int generate_command(const GenerateCommandOptions& options, const Program& program) {
  TrainedModel model(program.argc(), program.argv(), options.run, options.device);
  const std::int64_t context = model.settings.model.context;
  if (context == 0) {
    refuse("generate",
           "the model of " + options.run + " writes no text: " + model.settings.model.description,
           "Use `trireme eval` on it.");
  }
  if (options.json) {
    const std::string text =
        train::generate(model.strategy, context, options.prompt, options.generate);
    observe::Event event("generate");
    event.set("prompt", options.prompt).set("text", text);
    std::printf("%s\n", event.line().c_str());
    return 0;
  }
  // Ends with its reader (`| head`), where a job would go on.
  std::signal(SIGPIPE, SIG_IGN);
  train::GenerateOptions readable = options.generate;
  readable.ends = [] { return std::ferror(stdout) != 0; };
  std::fputs(options.prompt.c_str(), stdout);
  train::generate(model.strategy, context, options.prompt, readable, [](char c) {
    std::fputc(c, stdout);
    std::fflush(stdout);
  });
  std::fputc('\n', stdout);
  return 0;
}

}  // namespace

void declare_generate(Command& command) {
  auto& options = command.keep<GenerateCommandOptions>();
  train::GenerateOptions& generate = options.generate;
  command.about("Write text with a trained run")
      .footer("Example:\n  trireme generate runs/gpt-nano --prompt \"template <class\"");
  command.option("RUN", options.run, "Folder that train printed").required();
  command.option("--prompt", options.prompt, "What the text starts with");
  command.option("--bytes", generate.bytes, "How much to write").between(0, 1'000'000'000);
  command.option("--temperature", generate.temperature, "0 = the likeliest byte").at_least(0);
  command.option("--top-k", generate.top_k, "Only the k likeliest bytes; 0 = all").at_least(0);
  command.option("--seed", generate.seed, "The same seed, the same text");
  command.option("--device", options.device, kDeviceOption).filled();
  command.flag("--json", options.json, "One JSON line with the text");
  command.run([&] { return generate_command(options, command.program()); });
}

}  // namespace trireme::inline v0::cli
