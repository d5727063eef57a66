#include "trireme/observe/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trireme/base/joined.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::observe {
namespace {

constexpr int kAnyWidth = std::numeric_limits<int>::max();
constexpr int kLeastBar = 8, kMostBar = 24;  // characters
constexpr double kRemembered = 5;            // seconds
constexpr double kPerStep = 0.9;             // weight that older steps keep at each step, at least
constexpr double kBetweenDrawings = 0.1;     // seconds; faster drawing would be wasted
constexpr const char* kBold = "\x1b[1m";     // ECMA-48 codes
constexpr const char* kFaint = "\x1b[2m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kOff = "\x1b[0m";

std::string percent(double part, double whole) {
  return formatted("%.0f %%", whole > 0 ? 100 * part / whole : 0);
}

int columns_of(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// Width in characters: UTF-8 continuation bytes do not count.
int width_of(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// A field of the line. If not all fit, the one with the highest `spare` is removed first. The
// others keep their order.
struct Field {
  int spare;
  std::string text;
  bool bold = false;
};
constexpr int kBarSpare = 4;  // removed after MFU, before tokens/s

std::string line_of(const std::vector<Field>& fields, bool color) {
  const auto text = [&](const Field& field) {
    return color && field.bold ? kBold + field.text + kOff : field.text;
  };
  return joined(fields, text, color ? std::string(" ") + kFaint + "·" + kOff + " " : " · ");
}

// Removes whole fields only: half a word or half a number would mislead.
void fit(std::vector<Field>& fields, int columns) {
  const auto spare = [](const Field& one, const Field& other) { return one.spare < other.spare; };
  while (!fields.empty() && width_of(line_of(fields, false)) > columns)
    fields.erase(std::ranges::max_element(fields, spare));
}

std::string repeated(const char* text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

std::string bar(double share, int cells, bool color) {
  const int full = std::clamp(static_cast<int>(share * cells), 0, cells);
  const std::string done = repeated("━", full), rest = repeated("─", cells - full);
  return color ? kGreen + done + kOff + kFaint + rest + kOff : done + rest;
}

}  // namespace

void Progress::Recent::add(const StepFigures& figures) {
  const double keep = std::max(kPerStep, std::exp(-figures.step_seconds / kRemembered));
  const auto sum = [&](double& value, double more) { value = keep * value + more; };
  sum(steps, 1);
  sum(seconds, figures.step_seconds);
  sum(items, figures.items_per_second.value_or(0) * figures.step_seconds);
  sum(communication, figures.communication_seconds.value_or(0));
  sum(input, figures.input_seconds.value_or(0));
  sum(flops_share, figures.model_flops_utilization.value_or(0) * figures.step_seconds);
}

Progress::Progress(ProgressOptions options) : options_(options), done_(options.first) {}

Progress::~Progress() { finish(); }

std::optional<double> Progress::seconds_left() const {
  if (seen_ < 2 || options_.steps == 0) return std::nullopt;
  return recent_.seconds / recent_.steps * static_cast<double>(options_.steps - done_);
}

// The line for a terminal with `columns`; a log line has any width and no bar.
std::string Progress::text(int columns) const {
  const StepFigures& figures = *last_;
  const bool live = columns != kAnyWidth, counted = options_.steps > 0;
  std::vector<Field> fields;
  const std::string of = counted ? " of " + grouped(options_.steps) : "";
  fields.push_back({0, "step " + grouped(figures.step) + of});
  if (loss_) fields.push_back({1, "loss " + formatted("%.3f", *loss_), true});
  if (figures.items_per_second) {
    const double speed = recent_.seconds > 0 ? recent_.items / recent_.seconds : 0;
    fields.push_back({3, grouped(std::lround(speed)) + " " + std::string(figures.items) + "/s"});
  }
  if (figures.model_flops_utilization)
    fields.push_back({5, "MFU " + percent(recent_.flops_share, recent_.seconds)});
  if (figures.device_bytes)
    fields.push_back({6, "device " + bytes_text(static_cast<double>(*figures.device_bytes))});
  if (figures.communication_seconds)
    fields.push_back({7, "communication " + percent(recent_.communication, recent_.seconds)});
  if (figures.input_seconds)
    fields.push_back({8, "input " + percent(recent_.input, recent_.seconds)});
  if (figures.loss_scale)
    fields.push_back({9, "loss scale " + grouped(std::lround(*figures.loss_scale))});
  // Whole seconds, at least one while steps remain. The 0.01 allows for rounding in the sums.
  if (const auto left = seconds_left(); left && done_ < options_.steps)
    fields.push_back({2, duration_text(std::max(1.0, std::ceil(*left - 0.01))) + " left"});
  if (!live) return line_of(fields, false);
  // The bar comes first, with a space, and uses the columns that the other fields leave.
  if (counted) fields.push_back({kBarSpare, std::string(kLeastBar + 1 - 3, '-')});
  fit(fields, columns);
  const auto room =
      std::ranges::find_if(fields, [](const Field& field) { return field.spare == kBarSpare; });
  if (room == fields.end()) return line_of(fields, options_.color);
  fields.erase(room);
  const int cells = std::min(kMostBar, columns - 1 - width_of(line_of(fields, false)));
  const double share = static_cast<double>(done_) / static_cast<double>(options_.steps);
  return bar(share, cells, options_.color) + " " + line_of(fields, options_.color);
}

bool Progress::due(long step) const {
  // About twenty lines per run, at steps of 1-2-5, which are easier to read than odd numbers. A run
  // of unknown length has nine lines per decade.
  const double rough =
      options_.steps > 0
          ? std::max(1.0, static_cast<double>(options_.steps) / 20)
          : std::pow(10, std::floor(std::log10(static_cast<double>(std::max(step, 1L))) + 1e-9));
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double factor = rough <= power ? 1 : rough <= 2 * power ? 2 : rough <= 5 * power ? 5 : 10;
  const long distance = std::max(1L, std::lround(factor * power));
  // The steps of a worker that trains on its own may repeat or skip numbers.
  const long before = last_ ? last_->step : step - 1;
  return step != before &&
         (step / distance != before / distance || step == 1 || step == options_.steps);
}

void Progress::step(const StepFigures& figures) {
  const bool is_due = due(figures.step);
  ++seen_;
  done_ = figures.step;
  last_ = figures;
  if (seen_ == 2) recent_ = {};  // the first step includes allocation and kernel loading
  recent_.add(figures);
  // The loss of a skipped step may not be finite.
  const bool first = seen_ < 20 || !loss_ || !std::isfinite(*loss_);
  if (figures.loss && (std::isfinite(*figures.loss) || seen_ == 1))
    loss_ = first ? *figures.loss : 0.95 * *loss_ + 0.05 * *figures.loss;
  hidden_ += figures.step_seconds;
  if (options_.terminal) {
    if (live_.empty() || hidden_ >= kBetweenDrawings || done_ == options_.steps) draw();
  } else if (is_due) {
    std::fprintf(options_.stream, "%s\n", text(kAnyWidth).c_str());
    std::fflush(options_.stream);
  }
}

void Progress::draw() {
  const int columns = options_.columns > 0 ? options_.columns : columns_of(options_.stream);
  live_ = text(columns - 1);
  hidden_ = 0;
  std::fprintf(options_.stream, "\r%s\x1b[K", live_.c_str());
  std::fflush(options_.stream);
}

void Progress::line(std::string_view text) {
  if (!live_.empty()) std::fputs("\r\x1b[K", options_.stream);
  std::fprintf(options_.stream, "%.*s\n", static_cast<int>(text.size()), text.data());
  if (!live_.empty()) draw();
  std::fflush(options_.stream);
}

void Progress::finish() {
  if (live_.empty()) return;
  draw();
  std::fputc('\n', options_.stream);
  std::fflush(options_.stream);
  live_.clear();
}

}  // namespace trireme::inline v0::observe
