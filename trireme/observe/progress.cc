#include "trireme/observe/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace observe {
namespace {

constexpr int kAnyWidth = std::numeric_limits<int>::max();

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string percent(double part, double whole) {
  return formatted("%.0f %%", whole > 0 ? 100 * part / whole : 0);
}

int columns_of(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// Characters as a terminal counts them: UTF-8 continuation bytes are nothing.
int width_of(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// A part of the line. Where not all fit, the one with the highest `spare` goes first; the parts
// keep their order.
struct Field {
  int spare;
  std::string text;
};

std::string joined(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& field : fields) out += (out.empty() ? "" : " · ") + field.text;
  return out;
}

// Whole fields alone: half a word or half a number tells people something wrong.
std::string fitted(std::vector<Field> fields, int columns) {
  while (!fields.empty() && width_of(joined(fields)) > columns) {
    fields.erase(std::max_element(
        fields.begin(), fields.end(),
        [](const Field& one, const Field& other) { return one.spare < other.spare; }));
  }
  return joined(fields);
}

}  // namespace

std::string grouped(long value) {
  std::string out = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t i = out.size(); i > first + 3; i -= 3) out.insert(i - 3, 1, ',');
  return out;
}

std::string bytes_text(double bytes) {
  const char* unit = "bytes";
  for (const char* larger : {"kB", "MB", "GB", "TB"}) {
    if (bytes < 999.5) break;
    bytes /= 1000;
    unit = larger;
  }
  return formatted(bytes < 99.95 && unit[0] != 'b' ? "%.1f " : "%.0f ", bytes) + unit;
}

std::string duration_text(double seconds) {
  if (seconds < 10) return formatted(seconds < 1 ? "%.2f s" : "%.1f s", seconds);
  const long whole = std::lround(seconds);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) {
    const long rest = whole % 60;
    return std::to_string(whole / 60) + " min" +
           (rest > 0 ? " " + std::to_string(rest) + " s" : "");
  }
  const long minutes = whole / 60;
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

Progress::Progress(ProgressOptions options) : options_(options), done_(options.first) {}

Progress::~Progress() { finish(); }

std::optional<double> Progress::seconds_left() const {
  if (seen_ < 2 || options_.steps == 0) return std::nullopt;
  return pace_ * static_cast<double>(options_.steps - done_);
}

std::string Progress::text(const StepFigures& figures, int columns) const {
  std::vector<Field> fields;
  const std::string of = options_.steps > 0 ? " of " + grouped(options_.steps) : "";
  fields.push_back({0, "step " + grouped(figures.step) + of});
  if (loss_) fields.push_back({1, "loss " + formatted("%.3f", *loss_)});
  if (validation_) fields.push_back({3, "validation " + formatted("%.3f", *validation_)});
  if (figures.items_per_second)
    fields.push_back({4, grouped(std::lround(*figures.items_per_second)) + " " +
                             std::string(figures.items) + "/s"});
  if (figures.communication_seconds)
    fields.push_back(
        {5, "communication " + percent(*figures.communication_seconds, figures.step_seconds)});
  if (figures.input_seconds)
    fields.push_back({6, "input " + percent(*figures.input_seconds, figures.step_seconds)});
  if (figures.loss_scale)
    fields.push_back({7, "loss scale " + grouped(std::lround(*figures.loss_scale))});
  if (const auto left = seconds_left(); left && done_ < options_.steps) {
    fields.push_back({2, duration_text(std::round(*left)) + " left"});
  }
  return fitted(std::move(fields), columns);
}

bool Progress::due(long step) const {
  // Some twenty lines a run: at 1-2-5 steps, which read better in a log than odd ones. A run of
  // unknown length has nine a decade.
  const double rough =
      options_.steps > 0
          ? std::max(1.0, static_cast<double>(options_.steps) / 20)
          : std::pow(10, std::floor(std::log10(static_cast<double>(std::max(step, 1L))) + 1e-9));
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double factor = rough <= power ? 1 : rough <= 2 * power ? 2 : rough <= 5 * power ? 5 : 10;
  const long distance = std::max(1L, std::lround(factor * power));
  return step % distance == 0 || step == 1 || step == options_.steps;
}

void Progress::step(const StepFigures& figures) {
  ++seen_;
  done_ = figures.step;
  // The first step pays for memory and kernels; the pace forgets it.
  const double keep = seen_ <= 2 ? 0 : 0.9;
  pace_ = keep * pace_ + (1 - keep) * figures.step_seconds;
  // That of a step that was left out may be no number.
  const bool first = seen_ < 20 || !loss_ || !std::isfinite(*loss_);
  if (figures.loss && (std::isfinite(*figures.loss) || seen_ == 1))
    loss_ = first ? *figures.loss : 0.95 * *loss_ + 0.05 * *figures.loss;
  if (options_.terminal) {
    const int columns = options_.columns > 0 ? options_.columns : columns_of(options_.stream);
    live_ = text(figures, columns - 1);
    std::fprintf(options_.stream, "\r%s\x1b[K", live_.c_str());
    std::fflush(options_.stream);
  } else if (due(figures.step)) {
    std::fprintf(options_.stream, "%s\n", text(figures, kAnyWidth).c_str());
    std::fflush(options_.stream);
  }
}

void Progress::erase() {
  if (!live_.empty()) std::fputs("\r\x1b[K", options_.stream);
}

void Progress::line(std::string_view text) {
  erase();
  std::fprintf(options_.stream, "%.*s\n", static_cast<int>(text.size()), text.data());
  if (!live_.empty()) std::fputs(live_.c_str(), options_.stream);
  std::fflush(options_.stream);
}

void Progress::finish() {
  if (live_.empty()) return;
  std::fputc('\n', options_.stream);
  std::fflush(options_.stream);
  live_.clear();
}

}  // namespace observe
}  // namespace v0
}  // namespace trireme
