// trireme compare: several runs side by side.
#include "trireme/command/compare.h"

#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/line_plot.h"
#include "trireme/command/command.h"

namespace trireme {
inline namespace v0 {
namespace command {
namespace {

struct Options {
  std::vector<std::string> runs;
  std::string svg = "compare.svg";
  bool json = false;
};

void flatten(const toml::table& table, const std::string& prefix,
             std::map<std::string, std::string>& keys) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const auto* inner = node.as_table()) {
      flatten(*inner, name + ".", keys);
    } else {
      std::ostringstream text;
      node.visit([&](const auto& value) { text << value; });
      keys[name] = text.str();
    }
  }
}

// A loop of one's own leaves a folder without one (train/log.h).
std::map<std::string, std::string> read_keys(const std::string& path) {
  std::map<std::string, std::string> keys;
  if (!std::filesystem::exists(path)) return keys;
  try {
    flatten(toml::parse_file(path), "", keys);
  } catch (const toml::parse_error& error) {
    throw ConfigError(path + " cannot be read: " + std::string(error.description()),
                      {.operation = "compare",
                       .advice = "Name the folder of a run, as train prints it at its end."});
  }
  return keys;
}

void read_events(const std::string& path, ComparedRun& run) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_object() && event.contains("loss_unit") && event["loss_unit"].is_string())
      run.loss_unit = event["loss_unit"];
    if (!event.is_object() || !event.contains("loss") || !event["loss"].is_number()) continue;
    const std::pair point{event.value("step", 0.0), event["loss"].get<double>()};
    const std::string kind = event.value("event", "");
    if (kind == "validation") run.validation.push_back(point);
    if (kind != "step") continue;
    run.training.push_back(point);
    run.step_seconds.push_back(event.value("step_seconds", 0.0));
    run.per_second.push_back(
        event.value("tokens_per_second", event.value("samples_per_second", 0.0)));
    run.communication_seconds.push_back(event.value("communication_seconds", 0.0));
  }
  if (run.training.empty()) {
    const bool there = std::filesystem::exists(path);
    throw ConfigError(there ? path + " holds no step with a loss" : "there is no " + path,
                      {.operation = "compare",
                       .advice = there ? "Let the run take a step first; a loop with DataParallel "
                                         "tells its loss by parallel.backward(loss)."
                                       : "Name the folder of a run, as train prints it."});
  }
}

// The mean loss of the last tenth of the steps: single steps are noise.
double last_loss(const ComparedRun& run) {
  const std::size_t count = std::max<std::size_t>(run.training.size() / 10, 1);
  double sum = 0;
  for (std::size_t i = run.training.size() - count; i < run.training.size(); ++i)
    sum += run.training[i].second;
  return sum / static_cast<double>(count);
}

void print(const std::vector<ComparedRun>& runs, const std::string& svg) {
  std::size_t wide = 3;
  for (const ComparedRun& run : runs) wide = std::max(wide, run.name.size());
  const int width = static_cast<int>(wide);
  std::printf("%-*s  %8s  %10s  %10s  %10s  %10s  %7s\n", width, "run", "steps", "loss",
              "validation", "s a step", "items/s", "speed");
  const double first = median(runs[0].per_second).value_or(0);
  for (const ComparedRun& run : runs) {
    const double speed = median(run.per_second).value_or(0);
    std::printf("%-*s  %8.0f  %10.4f  ", width, run.name.c_str(), run.training.back().first,
                last_loss(run));
    run.validation.empty() ? std::printf("%10s", "-")
                           : std::printf("%10.4f", run.validation.back().second);
    std::printf("  %10.4f  %10.0f  ", median(run.step_seconds).value_or(0), speed);
    first > 0 ? std::printf("%6.2fx\n", speed / first) : std::printf("%7s\n", "-");
  }
  const auto keys = differing_keys(runs);
  std::printf(keys.empty() ? "\nno key differs\n" : "\nkeys that differ\n");
  for (const auto& [key, values] : keys) {
    std::printf("  %s\n", key.c_str());
    for (std::size_t i = 0; i < runs.size(); ++i)
      std::printf("    %-*s  %s\n", width, runs[i].name.c_str(), values[i].c_str());
  }
  std::printf("\nthe curves are in %s\n", svg.c_str());
}

void print_json(const std::vector<ComparedRun>& runs) {
  const auto keys = differing_keys(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const ComparedRun& run = runs[i];
    nlohmann::ordered_json event = {{"event", "compare"},
                                    {"run", run.folder},
                                    {"steps", static_cast<long>(run.training.back().first)},
                                    {"loss", last_loss(run)}};
    if (!run.validation.empty()) event["validation_loss"] = run.validation.back().second;
    event["step_seconds"] = median(run.step_seconds).value_or(0);
    event["tokens_per_second"] = median(run.per_second).value_or(0);
    event["differing"] = nlohmann::ordered_json::object();
    for (const auto& [key, values] : keys) event["differing"][key] = values[i];
    std::printf("%s\n", event.dump().c_str());
  }
}

int compare_command(const Options& options) {
  std::vector<ComparedRun> runs;
  for (const std::string& folder : options.runs) runs.push_back(read_run(folder));
  std::ofstream file(options.svg, std::ios::trunc);
  if (!(file << overlaid(runs)) || !file.flush()) {
    throw ResourceError(
        "cannot write " + options.svg,
        {.operation = "compare", .advice = "Give --svg a path in a folder that is there."});
  }
  options.json ? print_json(runs) : print(runs, options.svg);
  return 0;
}

}  // namespace

ComparedRun read_run(const std::string& folder) {
  ComparedRun run;
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();
  run.folder = folder;
  run.name = path.filename().string();
  run.keys = read_keys(folder + "/config.toml");
  read_events(folder + "/events.jsonl", run);
  return run;
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
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

namespace {

// Of the first run that says it; empty where another one says another.
std::string common_unit(const std::vector<ComparedRun>& runs) {
  std::string unit;
  for (const ComparedRun& run : runs) {
    if (run.loss_unit.empty() || run.loss_unit == unit) continue;
    if (!unit.empty()) return {};
    unit = run.loss_unit;
  }
  return unit;
}

}  // namespace

std::string overlaid(const std::vector<ComparedRun>& runs) {
  constexpr std::array<const char*, 8> kColors = {"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e",
                                                  "#9467bd", "#8c564b", "#17becf", "#7f7f7f"};
  constexpr std::size_t kPoints = 120;
  const std::string unit = common_unit(runs);
  LinePlot plot{.title = std::to_string(runs.size()) + " runs: loss",
                .subtitle = "thin: training, averaged; markers: validation",
                .x_label = "step",
                .y_label = unit.empty() ? "loss" : "loss (" + unit + ")"};
  for (std::size_t i = 0; i < runs.size(); ++i) {
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

void add_compare(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("compare", "Runs side by side: loss, speed, differing keys, curves");
  command->add_option("RUN", options->runs, "Folders of runs, as train prints them")
      ->required()
      ->expected(1, 64);
  command->add_option("--svg", options->svg, "Where the curves are drawn")->capture_default_str();
  command->add_flag("--json", options->json, "One JSON line per run");
  command->footer(
      "Example:\n  trireme compare runs/gpt-nano\nMore folders are drawn over it and "
      "compared with it.");
  command->callback([options, &invocation] {
    invocation.action = [options] { return compare_command(*options); };
  });
}

}  // namespace command
}  // namespace v0
}  // namespace trireme
