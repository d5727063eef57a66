// trireme compare: several runs side by side.
#include "trireme/cli/bench/compare.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "trireme/base/plot/bar_plot.h"
#include "trireme/base/plot/doubling_bins.h"
#include "trireme/base/plot/line_plot.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/checkpoints.h"
#include "trireme/cli/command.h"
#include "trireme/cli/files.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::cli {
namespace {

struct CompareOptions {
  std::vector<std::string> runs;
  std::string svg = "compare.svg", over = "step";
  bool json = false;
};

void flatten(const toml::table& table, const std::string& prefix,
             std::map<std::string, std::string>& keys) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const auto* inner = node.as_table()) {
      flatten(*inner, name + ".", keys);
    } else {
      const auto number = node.value_exact<double>();  // the stream writes 0.0030000000000000001
      std::ostringstream text;
      if (!number) node.visit([&](const auto& value) { text << value; });
      keys[name] = number ? number_text(*number) : text.str();
    }
  }
}

bool is_there(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

// The folder of a user's own loop has no configuration (train/report/log.h).
std::map<std::string, std::string> read_keys(const std::string& path) {
  std::map<std::string, std::string> keys;
  if (!is_there(path)) return keys;
  try {
    flatten(toml::parse_file(path), "", keys);
  } catch (const toml::parse_error& error) {
    refuse("compare", path + " cannot be read: " + std::string(error.description()),
           "Name the folder of a run, as train prints it at its end.");
  }
  return keys;
}

// The histogram of a "servers" event, counted since the servers' start.
void read_staleness(const nlohmann::json& event, ComparedRun& run) {
  const auto numbers = event.value("staleness", std::vector<std::int64_t>());
  const auto counts = event.value("staleness_pushes", std::vector<std::int64_t>());
  run.staleness.clear();
  for (std::size_t i = 0; i < std::min(numbers.size(), counts.size()); ++i)
    if (numbers[i] >= 0) run.staleness[numbers[i]] = counts[i];
  run.dropped_gradients = event.value("dropped", std::int64_t{0});
}

void read_step(const nlohmann::json& event, ComparedRun& run) {
  if (event.contains("samples_per_second")) run.items = "samples";
  // A value of another type throws, before anything is added.
  const double step = event.at("step"), loss = event.at("loss");
  const double seconds = event.value("step_seconds", 0.0);
  const double per_second = event.value(run.items + "_per_second", 0.0);
  const double communication = event.value("communication_seconds", 0.0);
  const double behind = event.value("behind_seconds", 0.0);
  const auto last_rank = event.value("last_rank", std::int64_t{-1});
  run.training.emplace_back(step, loss);
  run.step_seconds.push_back(seconds);
  run.per_second.push_back(per_second);
  run.communication_seconds.push_back(communication);
  if (last_rank < 0) return;
  ComparedRun::Late& late = run.late[last_rank];
  ++late.steps;
  late.seconds += behind;
}

void read_event(const nlohmann::json& event, double last, ComparedRun& run) {
  if (event.contains("loss_unit")) run.loss_unit = event["loss_unit"];
  const std::string kind = event.value("event", "");
  if (event.value("step", 0.0) > last) return;
  if (kind == "servers") read_staleness(event, run);
  if (!event.contains("loss") || !event["loss"].is_number()) return;
  if (kind == "validation")
    run.validation.emplace_back(event.at("step").get<double>(), event.at("loss").get<double>());
  if (kind == "step") read_step(event, run);
}

constexpr double kAllSteps = std::numeric_limits<double>::max();

// Reads the events of steps up to `last`.
void read_events(const std::string& path, double last, ComparedRun& run) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    try {
      if (event.is_object()) read_event(event, last, run);
    } catch (const nlohmann::json::exception&) {  // a line of another program
    }
  }
  if (!run.training.empty()) run.steps = static_cast<std::int64_t>(run.training.back().first);
}

// The mean loss of the last tenth of the steps, because single steps are noisy.
std::optional<double> last_loss(const ComparedRun& run) {
  if (run.training.empty()) return std::nullopt;
  const std::size_t count = std::max<std::size_t>(run.training.size() / 10, 1);
  double sum = 0;
  for (std::size_t i = run.training.size() - count; i < run.training.size(); ++i)
    sum += run.training[i].second;
  return sum / static_cast<double>(count);
}

std::optional<double> last_validation(const ComparedRun& run) {
  if (run.validation.empty()) return std::nullopt;
  return run.validation.back().second;
}

std::string fixed(std::optional<double> value, const char* format) {
  return value ? formatted(format, *value) : "-";
}

// If a run has no curves, only weights can be compared.
bool compares_weights(const std::vector<ComparedRun>& runs) {
  return std::ranges::any_of(runs, [](const ComparedRun& run) { return run.training.empty(); });
}

void print_weights(const std::vector<ComparedRun>& runs, int width) {
  std::printf("\nweights of the newest checkpoints (SHA-256, as `inspect --hash` has it)\n");
  std::set<std::string> hashes;  // "-": a run without a checkpoint
  for (const ComparedRun& run : runs) {
    const std::string hash = run.checkpoint.empty() ? "-" : hash_of(model_weights(run.checkpoint));
    hashes.insert(hash);
    std::printf("  %-*s  %s\n", width, run.name.c_str(), hash.c_str());
  }
  if (runs.size() > 1 && !hashes.contains("-"))
    std::printf(hashes.size() == 1 ? "  the weights are the same\n" : "  the weights differ\n");
}

// Prints the runs whose gradients may be late.
void print_staleness(const std::vector<ComparedRun>& runs, int width) {
  bool first = true;
  for (const ComparedRun& run : runs) {
    const std::vector<CountBin> bins = doubling_bins(run.staleness);
    if (bins.empty()) continue;
    if (std::exchange(first, false))
      std::printf("\nstaleness of the gradients, in updates by other workers\n");
    std::string shares;
    for (const CountBin& bin : bins)
      if (bin.count > 0)
        shares += (shares.empty() ? "" : ", ") + bin.label + ": " + percent_text(bin.share);
    std::printf("  %-*s  mean %s (%s); %s dropped\n", width, run.name.c_str(),
                fixed(mean_staleness(run), "%.1f").c_str(), shares.c_str(),
                grouped(run.dropped_gradients).c_str());
  }
}

void print_stragglers(const std::vector<ComparedRun>& runs, int width) {
  bool first = true;
  for (const ComparedRun& run : runs)
    if (const std::string text = straggler_text(run); !text.empty())
      std::printf("%s  %-*s  %s\n", std::exchange(first, false) ? "\nranks that came last\n" : "",
                  width, run.name.c_str(), text.c_str());
}

void print(const std::vector<ComparedRun>& runs) {
  std::size_t wide = 3;
  for (const ComparedRun& run : runs) wide = std::max(wide, run.name.size());
  const int width = static_cast<int>(wide);
  std::printf("%-*s  %8s  %10s  %10s  %10s  %10s  %7s\n", width, "run", "steps", "loss",
              "validation", "a step", "items/s", "speed");
  const double first = median(runs[0].per_second).value_or(0);
  for (const ComparedRun& run : runs) {
    const auto speed = median(run.per_second), step = median(run.step_seconds);
    const auto share = speed && first > 0 ? std::optional(*speed / first) : std::nullopt;
    std::printf("%-*s  %8s  %10s  %10s  %10s  %10s  %7s\n", width, run.name.c_str(),
                grouped(run.steps).c_str(), fixed(last_loss(run), "%.4f").c_str(),
                fixed(last_validation(run), "%.4f").c_str(),
                step ? duration_text(*step).c_str() : "-",
                speed ? grouped(std::lround(*speed)).c_str() : "-", fixed(share, "%.2fx").c_str());
  }
  if (compares_weights(runs)) print_weights(runs, width);
  print_staleness(runs, width);
  print_stragglers(runs, width);
  const auto keys = differing_keys(runs);
  std::printf(keys.empty() ? "\nno key differs\n" : "\nkeys that differ\n");
  for (const auto& [key, values] : keys) {
    std::printf("  %s\n", key.c_str());
    for (std::size_t i = 0; i < runs.size(); ++i)
      std::printf("    %-*s  %s\n", width, runs[i].name.c_str(), values[i].c_str());
  }
}

void print_json(const std::vector<ComparedRun>& runs) {
  const auto keys = differing_keys(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const ComparedRun& run = runs[i];
    nlohmann::ordered_json event = {
        {"event", "compare"}, {"run", run.folder}, {"steps", run.steps}};
    const auto set = [&](const std::string& name, std::optional<double> value) {
      if (value) event[name] = *value;
    };
    set("loss", last_loss(run));
    set("validation_loss", last_validation(run));
    set("step_seconds", median(run.step_seconds));
    set(run.items + "_per_second", median(run.per_second));
    set("mean_staleness", mean_staleness(run));
    if (compares_weights(runs) && !run.checkpoint.empty())
      event["weights_sha256"] = hash_of(model_weights(run.checkpoint));
    event["differing"] = nlohmann::ordered_json::object();
    for (const auto& [key, values] : keys) event["differing"][key] = values[i];
    std::fputs(show::json_line(event).c_str(), stdout);
  }
}

// "a/compare.svg" as "a/compare-staleness.svg".
std::string beside(const std::string& file, const std::string& word) {
  const std::filesystem::path path(file);
  return (path.parent_path() / (path.stem().string() + word + path.extension().string())).string();
}

int compare_command(const CompareOptions& options) {
  std::vector<ComparedRun> runs;
  for (const std::string& folder : options.runs) runs.push_back(read_run(folder));
  if (compares_weights(runs))
    for (ComparedRun& run : runs)
      if (const auto found = run.checkpoint.empty() ? find_checkpoint(run.folder) : std::nullopt)
        run.checkpoint = found->path();
  options.json ? print_json(runs) : print(runs);
  if (std::ranges::any_of(runs, [](const ComparedRun& run) { return !run.training.empty(); })) {
    write_file(options.svg, overlaid(runs, options.over == "time"), "compare");
    say(options.json, "\nthe curves are in " + options.svg);
  }
  if (const std::string plot = staleness_plot(runs); !plot.empty()) {
    const std::string file = beside(options.svg, "-staleness");
    write_file(file, plot, "compare");
    say(options.json, "the staleness of the gradients is in " + file);
  }
  return 0;
}

// The folder of a run's events and configuration: the checkpoints' folder, or the one above it.
std::string home_of(const std::string& folder, const std::optional<FoundCheckpoint>& checkpoint) {
  namespace fs = std::filesystem;
  if (!checkpoint || is_there(folder + "/events.jsonl")) return folder;
  const fs::path directory = fs::path(checkpoint->folder.path()).lexically_normal();
  for (const fs::path& home : {directory, fs::absolute(directory).parent_path()})
    if (is_there(home / "events.jsonl")) return home.string();
  return folder;
}

}  // namespace

ComparedRun read_run(const std::string& folder) {
  ComparedRun run;
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();
  run.folder = folder;
  run.name = path.filename().string();
  ComparedRun with_curves = run;
  read_events(folder + "/events.jsonl", kAllSteps, with_curves);
  if (!with_curves.training.empty()) {
    with_curves.keys = read_keys(folder + "/config.toml");
    return with_curves;
  }
  const auto checkpoint = find_checkpoint(folder);
  const std::string home = home_of(folder, checkpoint);
  run.keys = read_keys(home + "/config.toml");
  const bool cut = checkpoint && checkpoint->named;
  read_events(home + "/events.jsonl", cut ? static_cast<double>(checkpoint->step) : kAllSteps, run);
  if (checkpoint) run.checkpoint = checkpoint->path();
  if (checkpoint && (cut || run.training.empty())) run.steps = checkpoint->step;
  if (run.training.empty() && !checkpoint) {
    refuse("compare",
           is_there(folder) ? folder + " has no recorded steps (events.jsonl) and no checkpoint"
                            : "there is no " + folder,
           "Name the folder of a run, as train prints it, of a Log or of a Checkpointer.");
  }
  return run;
}

std::string straggler_text(const ComparedRun& run) {
  if (run.late.empty()) return {};
  std::int64_t steps = 0;
  for (const auto& [rank, late] : run.late) steps += late.steps;
  const auto& [rank, late] = *std::ranges::max_element(
      run.late, [](const auto& a, const auto& b) { return a.second.seconds < b.second.seconds; });
  return "rank " + std::to_string(rank) + ", in " + grouped(late.steps) + " of " +
         counted(steps, "step") + ", by " +
         duration_text(late.seconds / static_cast<double>(late.steps));
}

std::map<std::string, std::vector<std::string>> differing_keys(
    const std::vector<ComparedRun>& runs) {
  std::set<std::string> names;
  for (const ComparedRun& run : runs)
    for (const auto& [key, value] : run.keys) names.insert(key);
  std::map<std::string, std::vector<std::string>> differing;
  for (const std::string& name : names) {
    std::vector<std::string> values;
    for (const ComparedRun& run : runs) {
      const auto found = run.keys.find(name);
      values.push_back(found == run.keys.end() ? "-" : found->second);
    }
    if (std::set<std::string>(values.begin(), values.end()).size() > 1)
      differing[name] = std::move(values);
  }
  return differing;
}

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

namespace {

constexpr std::array<const char*, 8> kColors = {"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e",
                                                "#9467bd", "#8c564b", "#17becf", "#7f7f7f"};

// The unit that the runs agree on; empty if two differ.
std::string common_unit(const std::vector<ComparedRun>& runs) {
  std::string unit;
  for (const ComparedRun& run : runs) {
    if (run.loss_unit.empty() || run.loss_unit == unit) continue;
    if (!unit.empty()) return {};
    unit = run.loss_unit;
  }
  return unit;
}

// Replaces steps by seconds. Numbers of steps repeat if workers train on their own.
void put_over_time(ComparedRun& run) {
  std::vector<double> steps, seconds;
  double now = 0;
  for (std::size_t i = 0; i < run.training.size(); ++i) {
    steps.push_back(run.training[i].first);
    seconds.push_back(now += run.step_seconds[i]);
    run.training[i].first = now;
  }
  for (auto& [step, loss] : run.validation) {
    const auto next = std::ranges::upper_bound(steps, step);
    step = next == steps.begin() ? 0 : seconds[static_cast<std::size_t>(next - steps.begin()) - 1];
  }
}

}  // namespace

std::string overlaid(const std::vector<ComparedRun>& compared, bool over_time) {
  constexpr std::size_t kPoints = 120;
  std::vector<ComparedRun> runs = compared;
  if (over_time)
    for (ComparedRun& run : runs) put_over_time(run);
  const std::string unit = common_unit(runs);
  LinePlot plot{.title = std::to_string(runs.size()) + " runs: loss",
                .subtitle = "thin: training, averaged; markers: validation",
                .x_label = over_time ? "seconds, of steps alone" : "step",
                .y_label = unit.empty() ? "loss" : "loss (" + unit + ")"};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].training.empty()) continue;
    const std::string color = kColors[i % kColors.size()];
    plot.curves.push_back({.name = runs[i].name,
                           .points = averaged(runs[i].training, kPoints),
                           .color = color,
                           .width = runs[i].validation.empty() ? 2.0 : 1.2});
    if (runs[i].validation.empty()) continue;
    plot.curves.push_back({.name = runs[i].name + ", validation",
                           .points = runs[i].validation,
                           .color = color,
                           .markers = true,
                           .label_last = true});
  }
  return draw(plot);
}

std::optional<double> mean_staleness(const ComparedRun& run) {
  double sum = 0, all = 0;
  for (const auto& [staleness, count] : run.staleness) {
    sum += static_cast<double>(staleness) * static_cast<double>(count);
    all += static_cast<double>(count);
  }
  return all > 0 ? std::optional(sum / all) : std::nullopt;
}

std::string staleness_plot(const std::vector<ComparedRun>& runs) {
  std::map<std::int64_t, std::int64_t> together;  // for the bins
  for (const ComparedRun& run : runs)
    for (const auto& [staleness, count] : run.staleness) together[staleness] += count;
  if (together.empty()) return {};
  BarPlot plot{
      .title = "staleness of the gradients",
      .subtitle = "updates by other workers between a gradient's weights and its own update",
      .x_label = "staleness",
      .y_label = "% of a run's gradients"};
  for (const CountBin& bin : doubling_bins(together)) plot.groups.push_back(bin.label);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].staleness.empty()) continue;
    BarSeries series{.name = runs[i].name,
                     .values = std::vector<double>(plot.groups.size(), 0),
                     .color = kColors[i % kColors.size()]};
    for (const CountBin& bin : doubling_bins(runs[i].staleness)) {
      const auto group = std::ranges::find(plot.groups, bin.label);
      series.values[static_cast<std::size_t>(group - plot.groups.begin())] = 100 * bin.share;
    }
    plot.series.push_back(std::move(series));
  }
  return draw(plot);
}

void declare_compare(Command& command) {
  auto& options = command.keep<CompareOptions>();
  command.about("Runs side by side: loss, speed, differing keys, curves")
      .footer(
          "Example:\n  trireme compare runs/gpt-nano\nMore folders are drawn over it and "
          "compared with it.");
  command.option("RUN", options.runs, "Folders of runs, Logs or Checkpointers")
      .required()
      .values(1, 64);
  command.option("--svg", options.svg, "Where the curves are drawn");
  command.option("--over", options.over, "The curves' axis: step or time").one_of({"step", "time"});
  command.flag("--json", options.json, "One JSON line per run");
  command.run([&options] { return compare_command(options); });
}

}  // namespace trireme::inline v0::cli
