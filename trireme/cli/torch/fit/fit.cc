#include "trireme/cli/torch/fit/fit.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/command.h"
#include "trireme/cli/files.h"
#include "trireme/cli/launch/own_run.h"
#include "trireme/cli/torch/fit/candidates.h"
#include "trireme/cli/torch/fit/choice.h"
#include "trireme/cli/torch/training_job.h"
#include "trireme/observe/events.h"
#include "trireme/train/plan/job_plan.h"
#include "trireme/train/session.h"

namespace trireme::inline v0::cli {
namespace {

// The last line that is not empty.
std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = line;
  return last;
}

// Runs trainings of two steps, each in its own processes.
class Trials {
 public:
  Trials(const config::Config& config, const FitOptions& options)
      : options_(options), steps_(config.integer("train.steps")) {
    write_file(folder().file("config.toml"), config.to_toml(), folder().operation());
  }

  void make(FitCandidate& candidate) {
    say(options_.json, "trying " + candidate.layout() + " with " +
                           counted(candidate.lanes, "lane") + ", recompute " + candidate.recompute +
                           ", batch.micro " + std::to_string(candidate.micro) + " ...");
    const std::string name = "trial-" + std::to_string(++count_), log = name + ".log";
    const int code = runs_.run(words_of(candidate, folder().file(name)), log);
    if (code == 0) return read(candidate, folder().file(name + "/events.jsonl"));
    candidate.failure = "its trial ended with " + std::to_string(code);
    say(options_.json, "  " + candidate.failure + ": " + last_line(folder().file(log)));
  }

 private:
  const TemporaryFolder& folder() const { return runs_.folder(); }
  std::vector<std::string> words_of(const FitCandidate& candidate, const std::string& out) const {
    // A configuration may have fewer steps.
    const std::int64_t steps = std::max<std::int64_t>(steps_, train::kTrialSteps);
    std::vector<std::string> words = {"train",   folder().file("config.toml"),
                                      "--ranks", std::to_string(options_.ranks),
                                      "--out",   out,
                                      "--trial"};
    for (const std::string& assignment :
         {"parallel.sync=" + candidate.sync, "parallel.shard=" + std::to_string(candidate.shard),
          "train.lanes=" + std::to_string(candidate.lanes),
          "memory.recompute=" + candidate.recompute,
          "batch.micro=" + std::to_string(candidate.micro), "train.steps=" + std::to_string(steps),
          std::string("memory.limit=none")})
      words.insert(words.end(), {"--set", assignment});
    return words;
  }

  void read(FitCandidate& candidate, const std::string& path) const {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const auto event = nlohmann::json::parse(line, nullptr, false);
      if (!event.is_object() || event.value("event", "") != "trial") continue;
      candidate.step_seconds = event.at("step_seconds").get<double>();
      candidate.measured_bytes = event.at("measured_memory_bytes").get<std::int64_t>();
    }
    if (!candidate.step_seconds) candidate.failure = "its trial reported no measurement";
  }

  const FitOptions options_;
  const std::int64_t steps_;
  OwnRuns runs_{"fit"};
  int count_ = 0;
};

observe::Event event_of(const FitCandidate& candidate, std::int64_t limit, bool chosen) {
  observe::Event event("fit");
  event.set("sync", candidate.sync)
      .set("shard", candidate.shard)
      .set("lanes", candidate.lanes)
      .set("recompute", candidate.recompute)
      .set("micro", candidate.micro)
      .set("limit_bytes", limit)
      .set("predicted_memory_bytes", candidate.predicted_bytes);
  if (candidate.predicted_seconds > 0)
    event.set("predicted_step_seconds", candidate.predicted_seconds);
  if (candidate.measured_bytes) event.set("measured_memory_bytes", *candidate.measured_bytes);
  if (candidate.step_seconds) event.set("step_seconds", *candidate.step_seconds);
  const std::string& why = candidate.impossible.empty() ? candidate.failure : candidate.impossible;
  if (!why.empty()) event.set("reason", why);
  return event.set("fits", candidate.fits(limit)).set("chosen", chosen);
}

void print(const std::vector<FitCandidate>& candidates, const MemoryLeft& memory,
           std::optional<std::size_t> chosen, bool json) {
  if (json) {
    for (std::size_t i = 0; i < candidates.size(); ++i)
      std::printf("%s\n", event_of(candidates[i], memory.bytes, chosen == i).line().c_str());
    std::fflush(stdout);
  }
  say(json, "What fits (" + memory.reason + "):\n" + fit_table(candidates, memory.bytes, chosen));
}

void take(config::Config& config, const FitCandidate& chosen, const train::Settings& before) {
  const auto set = [&](const char* key, config::Value value) {
    if (config.value(key) != value) config.assign(key, std::move(value), "--fit");
  };
  set("parallel.sync", chosen.sync);
  set("parallel.shard", static_cast<std::int64_t>(chosen.shard));
  set("train.lanes", static_cast<std::int64_t>(chosen.lanes));
  set("memory.recompute", chosen.recompute);
  set("batch.micro", chosen.micro);
  if (chosen.micro == before.batches.micro)
    TRIREME_CHECK(train::Settings(config).job.identity == before.job.identity);
}

// Tries values of batch.micro until a layout fits. Runs `trials` if not null.
std::vector<FitCandidate> considered(const config::Config& config, const train::Settings& settings,
                                     const input::Corpus& corpus, const FitOptions& options,
                                     const FitPlace& place, Trials* trials) {
  std::vector<std::int64_t> micros = {settings.batches.micro};
  if (options.new_job)
    for (const std::int64_t micro : smaller_micro_batches(settings)) micros.push_back(micro);
  std::vector<FitCandidate> candidates;
  for (const std::int64_t micro : micros) {
    for (auto& one : fit_candidates(config, settings, corpus, place, micro))
      candidates.push_back(std::move(one));
    // If a trial needs more than predicted, another candidate of its layout is tried next.
    for (bool tried = trials != nullptr; tried;) {
      tried = false;
      for (const std::size_t i : to_try(candidates, place.limit)) {
        if (candidates[i].step_seconds) continue;
        trials->make(candidates[i]);
        tried = true;
      }
    }
    if (choose_fit(candidates, place.limit)) break;
  }
  return candidates;
}

using Memory = std::function<MemoryLeft(const train::Settings&, const input::Corpus&)>;

// Prints the candidates without choosing. Whether one fits; nullopt: there is no choice of layouts.
std::optional<bool> show_candidates(const config::Config& config, const plan::TrainingPlan& plan,
                                    const FitOptions& options, const Memory& memory_of) {
  train::Settings settings(config);
  settings.device_kind = plan.job.device;
  if (!can_fit(settings)) return {};
  const input::Corpus corpus = settings.model.data->load(settings.data_path);
  const MemoryLeft memory = memory_of(settings, corpus);
  const FitPlace place{
      .ranks = options.ranks, .ranks_here = options.ranks_here, .limit = memory.bytes};
  const std::vector<FitCandidate> candidates =
      considered(config, settings, corpus, options, place, nullptr);
  print(candidates, memory, std::nullopt, options.json);
  return choose_fit(candidates, memory.bytes).has_value();
}

}  // namespace

void fit(config::Config& config, const train::Settings& settings, const input::Corpus& corpus,
         const FitOptions& options) {
  if (!settings.strategy_name.empty())
    refuse("fit",
           "--fit chooses a layout, and parallel.strategy = \"" + settings.strategy_name +
               "\" names one",
           "Leave one of the two out.");
  train::program_bytes(corpus);  // before kernels are measured
  const MemoryLeft memory =
      memory_for_a_rank(settings, options.ranks_here, train::text_bytes(corpus));
  if (memory.bytes == 0 && settings.device_kind != "cpu")
    refuse("fit",
           "--fit for a device of kind " + settings.device_kind + " whose memory is not known",
           "Set memory.limit to the bytes that a rank may take there.");
  if (memory.reason.empty())
    refuse("fit", "--fit on a host whose memory is not known",
           "Set memory.limit to the bytes that a rank may take there.");
  constexpr int kAllCores = std::numeric_limits<int>::max();  // whatever a candidate's lanes are
  std::optional<train::KernelSpeeds> speeds;                  // a device has its maker's figures
  if (settings.device_kind == "cpu")
    speeds.emplace(train::speeds_here(settings, kAllCores, say_calibrating));
  const FitPlace place{.ranks = options.ranks,
                       .ranks_here = options.ranks_here,
                       .limit = memory.bytes,
                       .speeds = speeds ? &*speeds : nullptr};
  std::optional<Trials> trials;
  if (options.tries) trials.emplace(config, options);
  const std::vector<FitCandidate> candidates =
      considered(config, settings, corpus, options, place, trials ? &*trials : nullptr);
  if (speeds) speeds->save();
  const std::optional<std::size_t> chosen = choose_fit(candidates, memory.bytes);
  print(candidates, memory, chosen, options.json);
  if (!chosen)
    refuse("fit",
           "no layout fits into " + std::to_string(memory.bytes) + " bytes per rank (" +
               memory.reason + ")",
           std::string("Use more --ranks, memory.offload, a smaller model") +
               (options.new_job ? "" : " (a resumed run keeps batch.micro)") +
               ", or allow more memory.");
  const FitCandidate& best = candidates[*chosen];
  take(config, best, settings);
  if (best.micro != settings.batches.micro)
    say(options.json, "batch.micro is " + std::to_string(best.micro) + " instead of " +
                          std::to_string(settings.batches.micro) +
                          ", so that it fits: it decides bits, and the weights will not be those "
                          "of a job with " +
                          std::to_string(settings.batches.micro) + ".");
}

std::optional<bool> show_what_fits(const config::Config& config, const plan::TrainingPlan& plan,
                                   const FitOptions& options) {
  const bool for_host = plan.on_device() && plan.keeps_to_limit() && plan.fits_device();
  if (for_host) return {};
  return show_candidates(
      config, plan, options, [&](const train::Settings& settings, const input::Corpus& corpus) {
        return memory_for_a_rank(settings, options.ranks_here, train::text_bytes(corpus));
      });
}

void show_what_takes_less(const config::Config& config, const plan::TrainingPlan& plan,
                          const FitOptions& options) {
  show_candidates(config, plan, options, [&](const auto&, const auto&) -> MemoryLeft {
    return {plan.rank_bytes() / 10 * 9, "nine tenths of what this plan had"};
  });
}

}  // namespace trireme::inline v0::cli
