#include "trireme/train/report/report.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/plot/bar_plot.h"
#include "trireme/base/plot/doubling_bins.h"
#include "trireme/base/plot/line_plot.h"
#include "trireme/base/words.h"
#include "trireme/format/printable.h"
#include "trireme/observe/log.h"
#include "trireme/observe/terminal.h"
#include "trireme/train/run/run_folder.h"

namespace trireme::inline v0::train {
namespace {

std::string fixed(double value) { return formatted("%.3f", value); }

std::string percent_below(double value, double baseline) {
  const double percent = 100 * (1 - value / baseline);
  return formatted("%.0f", std::abs(percent)) + " % " + (percent < 0 ? "above" : "below");
}

// Puts "  | " before each line, to set generated text apart from the program's own.
std::string indented(const std::string& text) {
  std::string out = "  | ";
  for (const char c : format::printable(text)) {
    out += c;
    if (c == '\n') out += "  | ";
  }
  return out;
}

}  // namespace

void warn_of_lost(std::size_t events, const RunFiles& folder) {
  if (events > 0)
    observe::warning(counted(events, "event") + " could not be written to " + folder.events());
}

Report::Report(const RunFiles& folder, ReportOptions options)
    : folder_(folder),
      options_(std::move(options)),
      progress_({.steps = options_.steps,
                 .first = options_.first,
                 .stream = options_.json ? stderr : stdout,
                 .terminal = options_.terminal,
                 .color = observe::wants_color()}),
      stragglers_(options_.ranks) {
  if (options_.silent) return;
  events_.echo_to_stdout(options_.json);
  std::deque<std::string> kept;
  if (options_.unwritten) kept = std::exchange(*options_.unwritten, {});
  history_ = observe::read_history(folder_.events(), kept);
  events_.take_kept(std::move(kept), options_.first);
  const auto begin = [&](Output& output, const auto& open) {
    options_.goes_on ? attempt(output, open) : open();
  };
  begin(events_output_, [&] {
    open_events();
    events_.write_kept();
  });
  // Those of steps that are done again are in the file if it could not be cut.
  const auto is_later = [&](const auto& point) { return point.first > double(options_.first); };
  std::erase_if(history_.training, is_later);
  std::erase_if(history_.validation, is_later);
  begin(board_output_, [&] { open_board(); });
}

Report::~Report() {
  if (events_.is_open()) {
    try {
      events_.write_kept();
    } catch (const ResourceError&) {
    }
  }
  if (options_.unwritten && !options_.silent) *options_.unwritten = events_.release_kept();
  warn_of_lost(events_.unwritten(), folder_);
}

void Report::open_events() {
  observe::keep_until(folder_.events(), options_.first);
  events_.open(folder_.events());
}

void Report::open_board() {
  // Existing files may have figures of later steps; TensorBoard drops them.
  std::error_code away;  // open() reports the error
  const bool again = std::filesystem::exists(folder_.tensorboard(), away);
  board_.open(folder_.tensorboard(), again ? options_.first + 1 : 0);
}

template <class Write>
void Report::attempt(Output& output, const Write& write) {
  try {
    write();
  } catch (const ResourceError& error) {
    if (!std::exchange(output.failing, true))
      observe::warning(error.message() + ". The training goes on, and tries to write it again");
    return;
  }
  if (std::exchange(output.failing, false))
    observe::info(folder_.path() + "/" + output.name + " is written again");
}

void Report::write(const observe::Event& event) {
  events_.keep(event);
  // Opening reads the whole file.
  const TimePoint now = steady_now();
  if (!events_.is_open() && now < open_again_) return;
  open_again_ = now + options_.open_again;
  attempt(events_output_, [&] {
    if (!events_.is_open()) open_events();
    events_.write_kept();
  });
}

void Report::scalar(std::string_view tag, long step, double value) {
  attempt(board_output_, [&] {
    if (!board_.is_open()) open_board();
    board_.scalar(tag, step, value);
  });
}

void Report::line(const std::string& text) {
  if (!options_.silent) progress_.line(text);
}

std::string Report::with_unit(double loss) const {
  return fixed(loss) + (options_.unit.empty() ? "" : " " + options_.unit);
}

void Report::step(observe::StepFigures figures) {
  if (options_.silent) return;
  figures.items = options_.items;
  write(observe::step_event(figures));
  if (figures.loss && std::isfinite(*figures.loss))
    history_.training.emplace_back(figures.step, *figures.loss);
  const auto draw = [&](const std::string& name, std::optional<double> value) {
    if (value) scalar(name, figures.step, *value);
  };
  draw("loss/train", figures.loss);
  draw("learning_rate", figures.learning_rate);
  draw("gradient_norm", figures.gradient_norm);
  draw(options_.items + "_per_second", figures.items_per_second);
  draw("noise_scale", figures.noise_scale);
  draw("loss_scale", figures.loss_scale);
  noise_scale_ = figures.noise_scale;
  step_ = figures.step;
  if (figures.last_rank >= 0)
    stragglers_.add(figures.last_rank, figures.behind_seconds, figures.step_seconds);
  progress_.step(figures);
}

void Report::skipped(long step, const std::string& why) {
  line("step " + grouped(step) + " is left out: " + why);
}

void Report::resumed(const Resuming& from) {
  if (options_.silent) return;
  write(observe::Event("resumed")
            .set("step", from.step)
            .set("ranks", static_cast<long>(from.ranks))
            .set("servers", static_cast<long>(from.servers))
            .set("checkpoint", from.checkpoint)
            .set("time", observe::wall_seconds()));
  progress_.line("continuing after step " + grouped(from.step));
}

void Report::regrouped(const Regrouping& change) {
  if (options_.silent) return;
  write(observe::Event("regrouped")
            .set("step", change.step)
            .set("epoch", change.epoch)
            .set("ranks", static_cast<long>(change.ranks))
            .set("cause", change.cause)
            .set("steps_repeated", change.steps_repeated)
            .set("seconds", change.seconds)
            .set("time", observe::wall_seconds()));
  progress_.line("after step " + grouped(change.step) + ": " + change.cause + "; " +
                 counted(change.ranks, "rank") + " went on after " +
                 formatted("%.2f", change.seconds) + " s");
}

void Report::shares(long step, const ShareChange& change) {
  if (options_.silent) return;
  write(observe::Event("shares")
            .set("step", step)
            .set("shares", std::vector<std::int64_t>(change.shares.begin(), change.shares.end()))
            .set("micro_seconds", change.micro_seconds)
            .set("expected_seconds", change.step_seconds)
            .set("expected_before", change.step_seconds_before));
  progress_.line("after step " + grouped(step) + ", " + change.text());
}

void Report::stragglers() {
  if (options_.silent || stragglers_.empty()) return;
  write(stragglers_.event().set("step", step_));
  progress_.line(stragglers_.text());
}

void Report::saved(const SavedReport& saved) {
  if (options_.silent) return;
  write(observe::Event("checkpoint")
            .set("step", saved.steps_done)
            .set("written_bytes", static_cast<long>(saved.written_bytes))
            .set("kept_bytes", static_cast<long>(saved.kept_bytes)));
}

void Report::early_stop(long step, double best_loss, long best_step) {
  if (options_.silent) return;
  write(observe::Event("early_stop")
            .set("step", step)
            .set("best_loss", best_loss)
            .set("best_step", best_step));
  progress_.line("stopped early after step " + grouped(step) +
                 ": the validation loss has not fallen below the " + fixed(best_loss) +
                 " of step " + grouped(best_step));
}

void Report::validation(long step, double loss, long count, std::optional<double> accuracy) {
  if (options_.silent) return;
  write(observe::validation_event(step, loss, count, trigram_, options_.items, accuracy));
  if (std::isfinite(loss)) history_.validation.emplace_back(step, loss);
  if (accuracy) scalar("accuracy/validation", step, *accuracy);
  scalar("loss/validation", step, loss);
  std::string text = "validation after step " + grouped(step) + ": loss " + with_unit(loss) +
                     (accuracy ? ", accuracy " + fixed(*accuracy) : "");
  if (noise_scale_)
    text += "; gradient noise scale " + grouped(std::lround(*noise_scale_)) + " " + options_.items;
  progress_.line(text);
}

void Report::servers(long step, const ps::ServerFigures& figures) {
  if (options_.silent) return;
  std::vector<std::int64_t> staleness, counts;
  for (const auto& [number, count] : figures.staleness) {
    staleness.push_back(number);
    counts.push_back(count);
  }
  write(observe::Event("servers")
            .set("step", step)
            .set("servers", static_cast<long>(figures.servers))
            .set("updates", static_cast<long>(figures.updates))
            .set("pushes", figures.pushes)
            .set("dropped", static_cast<long>(figures.dropped))
            .set("late", static_cast<long>(figures.late))
            .set("repeated", static_cast<long>(figures.repeated))
            .set("staleness", staleness)
            .set("staleness_pushes", counts));
  BarPlot plot{.title = options_.title + ": staleness of the gradients",
               .subtitle = options_.subtitle,
               .x_label = "updates by others between a gradient's weights and its own update",
               .y_label = "% of the gradients"};
  BarSeries series{.name = "after step " + grouped(step)};
  for (const CountBin& bin : doubling_bins(figures.staleness)) {
    plot.groups.push_back(bin.label);
    series.values.push_back(100 * bin.share);
  }
  plot.series.push_back(std::move(series));
  attempt(staleness_output_, [&] { write_whole(folder_.staleness(), draw(plot)); });
}

void Report::table_of_servers(const ps::ServerFigures& figures) {
  constexpr double kBar = 30;
  progress_.line("\nstaleness  share of the gradients");
  for (const CountBin& bin : doubling_bins(figures.staleness)) {
    char out[128];
    std::snprintf(out, sizeof out, "%-10s %-6s %s", bin.label.c_str(),
                  percent_text(bin.share).c_str(),
                  std::string(static_cast<std::size_t>(kBar * bin.share + 0.5), '#').c_str());
    progress_.line(out);
  }
  std::string by_worker;
  for (std::size_t worker = 0; worker < figures.pushes.size(); ++worker)
    by_worker += (worker > 0 ? ", " : "") + grouped(figures.pushes[worker]) + " of worker " +
                 std::to_string(worker);
  std::string text = counted(figures.servers, "server") + " applied " + by_worker + "; dropped " +
                     grouped(figures.dropped) + " that were not finite";
  if (figures.late > 0) text += "; did not wait for " + counted(figures.late, "late gradient");
  if (figures.repeated > 0)
    text += "; " + counted(figures.repeated, "gradient") +
            (figures.repeated == 1 ? " was" : " were") + " sent again after a lost connection";
  progress_.line(text);
}

void Report::trigram(double loss, bool told) {
  if (options_.silent) return;
  if (std::isnan(loss))
    return progress_.line("no byte trigram is counted: there is too little memory for it");
  trigram_ = history_.trigram = loss;
  if (told) return;
  write(observe::Event("trigram").set("trigram_loss", loss));
  progress_.line("a byte trigram with back-off, counted on the training text: " + with_unit(loss));
}

void Report::expected(double seconds) {
  if (options_.silent) return;
  write(observe::Event("expected").set("seconds", seconds));
  progress_.line("expected time: " + duration_text(seconds) + " more");
}

void Report::plot() {
  if (options_.silent) return;
  // A run may have millions of steps, and is drawn after each validation.
  constexpr std::size_t kPoints = 120, kFaintPoints = 2'400;
  LinePlot plot{.title = options_.title + ": loss",
                .subtitle = options_.subtitle,
                .x_label = "step",
                .y_label = options_.unit.empty() ? "loss" : "loss (" + options_.unit + ")"};
  const std::size_t steps = history_.training.size();
  const auto mean_of = [&](std::size_t points) {
    return steps <= points ? std::string("training, each step")
                           : "training, mean of " + std::to_string(steps / points) + " steps";
  };
  if (steps > 2 * kPoints) {
    plot.curves.push_back(
        {mean_of(kFaintPoints), averaged(history_.training, kFaintPoints), "#1f77b4", 1, 0.25});
    plot.curves.push_back({mean_of(kPoints), averaged(history_.training, kPoints), "#1f77b4"});
  } else {
    plot.curves.push_back({"training", history_.training, "#1f77b4"});
  }
  if (!history_.validation.empty()) {
    plot.curves.push_back({.name = "validation",
                           .points = history_.validation,
                           .color = "#d62728",
                           .markers = true,
                           .label_last = true});
  }
  if (history_.trigram) {
    plot.references.push_back(
        {"byte trigram with back-off " + formatted("%.2f", *history_.trigram), *history_.trigram});
  }
  attempt(plot_output_, [&] { write_whole(folder_.plot(), draw(plot)); });
}

void Report::losses(const Outcome& outcome) {
  if (!outcome.first_validation || !outcome.last_validation) return;
  std::string text = "\nvalidation loss: " + fixed(*outcome.first_validation) + " before, " +
                     fixed(*outcome.last_validation) + " after" +
                     (options_.unit.empty() ? "" : " (" + options_.unit + ")");
  if (trigram_) {
    text += "; a byte trigram with back-off has " + fixed(*trigram_) + ": " +
            percent_below(*outcome.last_validation, *trigram_) + " it";
  }
  progress_.line(text);
}

void Report::finish(const Outcome& outcome) {
  if (options_.silent) return;
  progress_.finish();
  observe::Event event("plan");
  event.set("predicted_memory_bytes", outcome.predicted_bytes)
      .set("measured_memory_bytes", outcome.measured_bytes);
  if (outcome.measured_device_bytes > 0)
    event.set("predicted_device_bytes", outcome.predicted_device_bytes)
        .set("measured_device_bytes", outcome.measured_device_bytes);
  const Outcome::Keeping& keeping = outcome.keeping;
  if (keeping.snapshot > 0)
    event.set("predicted_snapshot_bytes", keeping.predicted_snapshot)
        .set("measured_snapshot_bytes", keeping.snapshot);
  if (keeping.copies > 0)
    event.set("predicted_copy_bytes", keeping.predicted_copies)
        .set("measured_copy_bytes", keeping.copies)
        .set("copy_sent_bytes", keeping.sent)
        .set("copy_wait_seconds", keeping.waited);
  if (outcome.predicted_step > 0) event.set("predicted_step_seconds", outcome.predicted_step);
  if (outcome.measured_step > 0) event.set("measured_step_seconds", outcome.measured_step);
  event.set("measured_seconds", outcome.measured_seconds);
  if (!options_.unit.empty()) event.set("loss_unit", options_.unit);
  write(event);
  plot();
  losses(outcome);
  if (!outcome.sample.empty()) progress_.line("\nthe model writes:\n" + indented(outcome.sample));
  progress_.line("\n         predicted      measured");
  const auto row = [&](const std::string& name, const std::string& left, const std::string& right) {
    char out[128];
    std::snprintf(out, sizeof out, "%-8s %-14s %s", name.c_str(), left.c_str(), right.c_str());
    progress_.line(out);
  };
  const auto memory = [](double bytes) { return bytes > 0 ? bytes_text(bytes) : "-"; };
  row("memory", memory(outcome.predicted_bytes),
      bytes_text(outcome.measured_bytes) +
          (outcome.one_process ? " (the process of all ranks" : " (the rank with most") +
          ", at its highest)");
  if (outcome.measured_device_bytes > 0)
    row("device", memory(outcome.predicted_device_bytes),
        bytes_text(outcome.measured_device_bytes) + " (tensors of the rank with most)");
  if (keeping.snapshot > 0)
    row("snapshot", memory(keeping.predicted_snapshot),
        bytes_text(keeping.snapshot) + " (of a checkpoint, on the rank with most; in memory)");
  if (keeping.copies > 0)
    row("copies", memory(keeping.predicted_copies),
        bytes_text(keeping.copies) + " (checkpoint.memory, in memory; " + bytes_text(keeping.sent) +
            " sent a step, waited for " + duration_text(keeping.waited) + ")");
  const auto time = [](double seconds) { return seconds > 0 ? duration_text(seconds) : "-"; };
  if (outcome.measured_step > 0)
    row("step", time(outcome.predicted_step), time(outcome.measured_step) + " (the median)");
  row("in all", "-", duration_text(outcome.measured_seconds));
  if (outcome.servers) table_of_servers(*outcome.servers);
  if (!stragglers_.empty()) progress_.line("");
  stragglers();
  progress_.line("\nthe run is in " + folder_.path() + " (config.toml, events.jsonl, loss.svg, " +
                 (outcome.servers ? "staleness.svg, " : "") + "tensorboard/, checkpoint/)");
}

}  // namespace trireme::inline v0::train
