// trireme generate: prints text from a trained run, byte by byte.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/cli/command.h"
#include "trireme/cli/trained_model.h"
#include "trireme/command/option_checks.h"
#include "trireme/observe/events.h"
#include "trireme/train/generate.h"

namespace trireme::inline v0::cli {
namespace {

struct GenerateCommandOptions {
  std::string run, prompt;
  train::GenerateOptions generate;
  bool json = false;
};

int generate_command(const GenerateCommandOptions& options, const Invocation& invocation) {
  TrainedModel model(invocation.argc, invocation.argv, options.run);
  const std::int64_t context = model.settings.model.context;
  if (context == 0) {
    throw ConfigError(
        "the model of " + options.run + " writes no text: " + model.settings.model.description,
        {.operation = "generate", .advice = "Use `trireme eval` on it."});
  }
  if (options.json) {
    const std::string text =
        train::generate(model.strategy, context, options.prompt, options.generate);
    observe::Event event("generate");
    event.set("prompt", options.prompt).set("text", text);
    std::printf("%s\n", event.line().c_str());
    return 0;
  }
  std::fputs(options.prompt.c_str(), stdout);
  train::generate(model.strategy, context, options.prompt, options.generate, [](char c) {
    std::fputc(c, stdout);
    std::fflush(stdout);
  });
  std::fputc('\n', stdout);
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<GenerateCommandOptions>();
  CLI::App* command = app.add_subcommand("generate", "Write text with a trained run");
  command->add_option("RUN", options->run, "Folder that train printed")->required();
  command->add_option("--prompt", options->prompt, "What the text starts with");
  command->add_option("--bytes", options->generate.bytes, "How much to write")
      ->check(command::between(0, 1'000'000'000))
      ->capture_default_str();
  command->add_option("--temperature", options->generate.temperature, "0 = the likeliest byte")
      ->check(command::at_least(0))
      ->capture_default_str();
  command->add_option("--top-k", options->generate.top_k, "Only the k likeliest bytes; 0 = all")
      ->check(command::at_least(0))
      ->capture_default_str();
  command->add_option("--seed", options->generate.seed, "The same seed, the same text")
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON line with the text");
  command->footer("Example:\n  trireme generate runs/gpt-nano --prompt \"template <class\"");
  command->callback([options, &invocation] {
    invocation.action = [options, &invocation] { return generate_command(*options, invocation); };
  });
}

}  // namespace trireme::inline v0::cli
