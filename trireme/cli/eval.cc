// trireme eval: a trained run's loss on its held-out text.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "trireme/cli/command.h"
#include "trireme/cli/trained_model.h"
#include "trireme/format/tokenizer.h"
#include "trireme/input/corpus.h"
#include "trireme/observe/events.h"
#include "trireme/observe/progress.h"
#include "trireme/train/trigram.h"

namespace trireme {
inline namespace v0 {
namespace cli {
namespace {

struct Options {
  std::string run, data;
  std::int64_t sequences = 0;
  bool json = false;
};

int eval_command(const Options& options, const Invocation& invocation,
                 const ModelRegistry& models) {
  TrainedModel model(invocation.argc, invocation.argv, options.run, models);
  const train::Settings& settings = model.settings;
  const std::string path = options.data.empty() ? settings.data_path : options.data;
  const input::Corpus corpus = input::load_corpus({.path = path, .block = settings.model.block});
  const auto tokens = std::make_shared<const std::vector<std::int32_t>>(
      format::make_tokenizer("bytes")->encode(corpus.validation));
  const auto held_out = TextDataset::fixed_windows(tokens, settings.model.block);
  const std::int64_t sequences =
      options.sequences > 0 ? options.sequences : settings.validate_sequences;
  const std::int64_t batch = settings.batches.batch;
  const auto batches = fixed_batches(*held_out, batch, settings.batches.micro,
                                     (sequences + batch - 1) / batch, 0, 1);
  long count = 0;
  for (const Batch& one : batches) count += one.global_count;
  const double loss = model.strategy.evaluate(batches, token_loss());
  const double trigram = train::trigram_loss(corpus.train, corpus.validation);
  if (options.json) {
    std::printf("%s\n",
                observe::validation_event(model.steps_done, loss, count, trigram).line().c_str());
    return 0;
  }
  std::printf(
      "after step %s: validation loss %.4f nats a byte over %s bytes of %s\n"
      "a byte trigram with back-off has %.4f over all of it\n",
      observe::grouped(model.steps_done).c_str(), loss, observe::grouped(count).c_str(),
      corpus.source.c_str(), trigram);
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Invocation& invocation, const ModelRegistry& models) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("eval", "Loss of a trained run on held-out text");
  command->add_option("RUN", options->run, "Folder that train printed")->required();
  command->add_option("--data", options->data, "Other text (default: the run's own)");
  command->add_option("--sequences", options->sequences,
                      "How many, spread evenly (default: train.validate_sequences)");
  command->add_flag("--json", options->json, "One validation event");
  command->footer("Example:\n  trireme eval runs/gpt-nano");
  command->callback([options, &invocation, &models] {
    invocation.action = [options, &invocation, &models] {
      return eval_command(*options, invocation, models);
    };
  });
}

}  // namespace cli
}  // namespace v0
}  // namespace trireme
