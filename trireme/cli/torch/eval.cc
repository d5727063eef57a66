// trireme eval: a trained run's loss on its held-out text.
#include <cstdio>

#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/program.h"
#include "trireme/cli/torch/trained_model.h"
#include "trireme/input/shared_corpus.h"
#include "trireme/observe/events.h"
#include "trireme/rendezvous/launchers/environment.h"
#include "trireme/train/evaluation/follow_run.h"
#include "trireme/train/evaluation/forward_model.h"
#include "trireme/train/report/trigram.h"

namespace trireme::inline v0::cli {
namespace {

struct EvalOptions {
  std::string run, data, device = "auto";
  std::int64_t samples = 0;
  bool json = false, follow = false;
};

void print_event(const TrainedModel& model, const train::Evaluation& result,
                 std::optional<double> trigram) {
  const observe::Event event =
      observe::validation_event(model.steps_done, result.loss, static_cast<long>(result.count),
                                trigram, model.settings.model.data->words().items, result.accuracy);
  std::printf("%s\n", event.line().c_str());
}

void print_text(const TrainedModel& model, const train::Evaluation& result,
                std::optional<double> trigram, const std::string& source) {
  const train::DataWords& words = model.settings.model.data->words();
  const std::string unit = words.unit.empty() ? "" : " " + words.unit;
  std::printf("after step %s: validation loss %s%s over %s %s of %s\n",
              grouped(model.steps_done).c_str(), formatted("%.4f", result.loss).c_str(),
              unit.c_str(), grouped(static_cast<long>(result.count)).c_str(), words.counted.c_str(),
              source.c_str());
  if (result.accuracy) std::printf("%.2f %% of the answers are right\n", 100 * *result.accuracy);
  if (trigram) std::printf("a byte trigram with back-off has %.4f over all of it\n", *trigram);
}

int follow(const EvalOptions& options, const Program& program) {
  if (!options.data.empty() || options.samples > 0)
    refuse("eval", std::string(options.data.empty() ? "--samples" : "--data") + " with --follow",
           "Leave it out: the run's evaluations are to be comparable.");
  rendezvous::ignore_launchers();  // one process suffices
  // By itself it takes no device, which a training may be using.
  return train::follow_run(program.argc(), program.argv(), options.run,
                           options.device == "auto" ? "cpu" : options.device, options.json);
}

int eval_command(const EvalOptions& options, const Program& program) {
  if (options.follow) return follow(options, program);
  TrainedModel model(program.argc(), program.argv(), options.run, options.device);
  const train::Settings& settings = model.settings;
  const std::string path = options.data.empty() ? settings.data_path : options.data;
  const train::DataSource& data = *settings.model.data;
  const auto corpus = input::SharedCorpus::make(data.load(path));
  const auto held_out = data.validation(corpus->validation(), corpus);
  const std::int64_t samples = options.samples > 0 ? options.samples : settings.validate_samples;
  const auto batches = train::held_out_batches(model.job, settings, *held_out, samples);
  const train::Evaluation result = *train::evaluate(model.strategy, settings.model, batches);
  std::optional<double> trigram;
  if (settings.model.context > 0 && train::has_trigrams(corpus->train(), corpus->validation()))
    trigram = train::trigram_loss(corpus->train(), corpus->validation());
  options.json ? print_event(model, result, trigram)
               : print_text(model, result, trigram, corpus->source());
  return 0;
}

}  // namespace

void declare_eval(Command& command) {
  auto& options = command.keep<EvalOptions>();
  command.about("Loss of a trained run on held-out data")
      .footer("Example:\n  trireme eval runs/gpt-nano");
  command.option("RUN", options.run, "Folder that train printed").required();
  command.option("--data", options.data, "Other data (default: the run's own)").filled();
  command
      .option("--samples,--sequences", options.samples,
              "How many, spread evenly (default: train.validate_sequences)")
      .at_least(1);
  command
      .option("--device", options.device,
              std::string(kDeviceOption) + ", and with --follow the CPU")
      .filled();
  command.flag("--follow", options.follow,
               "While the run trains: evaluate each checkpoint as it comes, and keep the best in "
               "RUN/best");
  command.flag("--json", options.json, "One validation event (--follow: one for each)");
  command.run([&] { return eval_command(options, command.program()); });
}

}  // namespace trireme::inline v0::cli
