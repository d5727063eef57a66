// trireme convert: prepares a run to be continued on another layout.
//
// A checkpoint names tensors as a whole, and every rank of any layout reads its part of them
// (train/layouts_test.cc), so no tensor is rewritten: the command verifies the newest checkpoint,
// checks that the model can be cut for the new layout, and writes the layout into config.toml.

#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/base/shell_word.h"
#include "trireme/base/words.h"
#include "trireme/cli/command.h"
#include "trireme/cli/program.h"
#include "trireme/cli/torch/training_job.h"
#include "trireme/observe/events.h"
#include "trireme/storage/folder.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/train/run/resume_changes.h"
#include "trireme/train/run/run_claim.h"

namespace trireme::inline v0::cli {
namespace {

struct ConvertOptions {
  std::string run, to;
  int ranks = 1;
  // The keys parallel.*; shard 0: hybrid chooses.
  int pipeline = 1, tensor = 1, context = 1, expert = 1, shard = 0;
  std::vector<std::string> set;
  bool json = false;
};

// Refuses a sync under which ranks train copies or workers train on their own: it is not a layout.
void refuse_other_training(const config::Config& config, const std::string& now,
                           const std::string& run) {
  const train::Settings settings(config);
  const std::string& sync = settings.strategy.sync;
  const bool alone = parallel::is_served(sync) && settings.strategy.server.alone();
  if (!parallel::is_local(sync) && !alone) return;
  refuse("convert",
         "parallel.sync = \"" + sync + "\"" + (alone ? " whose workers do not wait for all" : "") +
             " is no layout: it trains in another way",
         "To change it on purpose, use trireme train --resume " + run +
             " --changed parallel.sync=" + now + ", which names what else changes.");
}

// The keys of the layout. Axes that are not named are 1. Keys that only the former layout could use
// get their defaults.
std::vector<std::string> assignments_of(const ConvertOptions& options,
                                        const config::Schema& schema) {
  const auto number = [](const char* key, int value) {
    return std::string(key) + "=" + std::to_string(value);
  };
  std::vector<std::string> set = {"parallel.sync=" + options.to,
                                  "parallel.strategy=",
                                  number("parallel.pipeline", options.pipeline),
                                  number("parallel.tensor", options.tensor),
                                  number("parallel.context", options.context),
                                  number("parallel.expert", options.expert),
                                  number("parallel.shard", options.shard),
                                  "parallel.data=0",
                                  "batch.shares=equal"};
  if (options.pipeline == 1) {
    set.push_back("parallel.schedule=" +
                  std::get<std::string>(schema.find("parallel.schedule")->fallback));
    set.emplace_back("parallel.chunks=0");
  }
  if (options.tensor == 1) set.emplace_back("parallel.sequence=false");
  set.insert(set.end(), options.set.begin(), options.set.end());
  return set;
}

// Unchanged values keep their source; the source of the others is this command.
void restore_sources(config::Config& config, const config::Config& before) {
  for (const config::Key& key : config.schema().keys())
    if (config.source(key.name) == "--set")
      config.assign(
          key.name, config.value(key.name),
          config.value(key.name) == before.value(key.name) ? before.source(key.name) : "convert");
}

storage::Manifest verified(const train::RunFolder& folder) {
  const storage::CheckpointFolder checkpoints = folder.checkpoints();
  return checkpoints.verify(folder.newest_step());
}

void record(const train::RunFolder& folder, const std::vector<train::Change>& changes, long step,
            bool json) {
  observe::EventWriter events;
  events.open(folder.events());
  events.echo_to_stdout(json);
  for (const train::Change& change : changes) {
    events.write(train::event_of(change, step));
    say(json, "changed  " + change.key + " = " + change.now + ", before " + change.before);
  }
}

int convert(const ConvertOptions& options, const Program& program) {
  const train::RunClaim claim({.resume = options.run});  // other jobs leave the folder alone
  const train::RunFolder& folder = claim.folder();
  folder.take_former_config();  // else the next resume would, and undo this
  config::Config before = train::read_config(folder.config());
  train::restore_sources(before, folder.config());
  refuse_other_training(before, options.to, folder.path());
  const storage::Manifest manifest = verified(folder);
  TrainingJobOptions wanted{.config = folder.config(),
                            .name = "the new layout",
                            .ranks = options.ranks,
                            .under_mpirun = false,
                            .predicts_time = false,
                            .set = assignments_of(options, before.schema())};
  TrainingJob job = prepare(wanted);
  refuse_other_training(job.config, options.to, folder.path());
  const auto changes = train::check_changes(job.config, job.corpus->hash(), folder, {});
  restore_sources(job.config, before);
  const auto step = static_cast<long>(manifest.step);
  say(options.json, plan::explain(job.plan));
  double bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += static_cast<double>(file.bytes);
  say(options.json, "the checkpoint of step " + grouped(step) + " (" + bytes_text(bytes) +
                        ", verified) has tensors for any layout: none needs to be converted");
  if (changes.empty()) {
    say(options.json, "config.toml has this layout already");
  } else {
    folder.write_config(job.config);
    record(folder, changes, step, options.json);
  }
  say(options.json, "next: " + shell_word(program.typed()) + " train --resume " +
                        shell_word(folder.path()) +
                        (options.ranks > 1 ? " --ranks " + std::to_string(options.ranks) : ""));
  return 0;
}

}  // namespace

void declare_convert(Command& command) {
  auto& options = command.keep<ConvertOptions>();
  command.about("Prepare a run to be continued on another layout")
      .footer("Example:\n  trireme convert runs/gpt-nano --to zero3 --ranks 2");
  command.option("RUN", options.run, "Folder that train printed").required();
  command
      .option("--to", options.to,
              "parallel.sync of the new layout: " + joined(parallel::level_names()) + ", ...")
      .required()
      .completes(parallel::sync_names());
  command.option(kRanksOption, options.ranks, "Ranks that will train");
  for (const auto& [name, value, about] :
       {std::tuple{"--pipeline", &options.pipeline, "Ranks of a pipeline (parallel.pipeline)"},
        {"--tensor", &options.tensor, "Ranks that share the tensors of each layer"},
        {"--context", &options.context, "Ranks that share the positions of each sequence"},
        {"--expert", &options.expert, "Ranks that share the experts of each mixture"}})
    command.option(name, *value, about).between(1, kMostProcesses).hides_default();
  command.option("--shard", options.shard, "Consecutive ranks that share one copy under hybrid")
      .between(0, kMostProcesses);
  command.option("--set", options.set, "key=value of the new configuration, as often as wanted")
      .repeatable();
  command.flag("--json", options.json, "Events as JSON lines on standard output");
  command.run([&] { return convert(options, command.program()); });
}

}  // namespace trireme::inline v0::cli
