#include "trireme/show/drawing/picture.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "trireme/show/drawing/page.h"
#include "trireme/show/drawing/panel.h"
#include "trireme/show/drawing/sheet.h"

namespace trireme::inline v0::show {
namespace {

constexpr double kGap = 26;

// The fewest columns for which the page is not much higher than wide.
int columns_for(const Panel& panel, int panels) {
  int columns = 1;
  while (columns < panels && (panel.height() + kGap) * ((panels + columns - 1) / columns) >
                                 1.3 * (panel.width() + kGap) * columns)
    ++columns;
  return columns;
}

// Per rank: the chunks that it sends and receives, and how many of those replace its content.
std::vector<std::array<int, 3>> traffic_of(const Recording& recording, int step) {
  std::vector<std::array<int, 3>> traffic(static_cast<std::size_t>(recording.ranks));
  std::set<std::array<int, 3>> counted;  // a chunk may be sent as several terms
  for (const Message& one : recording.steps[static_cast<std::size_t>(step)].messages) {
    if (!counted.insert({one.from, one.to, one.chunk}).second) continue;
    ++traffic[static_cast<std::size_t>(one.from)][0];
    ++traffic[static_cast<std::size_t>(one.to)][1];
    traffic[static_cast<std::size_t>(one.to)][2] += one.copy ? 1 : 0;
  }
  return traffic;
}

// A panel of the sheet. The rounds after it up to `until` are left out (`step` itself: none).
struct Shown {
  int step = 0, until = 0;
};

// All steps of a small recording. For a large one: the first two and the last of each run of rounds
// with the same traffic.
std::vector<Shown> shown_steps(const Recording& recording) {
  constexpr int kMostCells = 1200;
  const int last = recording.rounds();
  std::vector<Shown> shown;
  const bool all = (last + 1) * recording.ranks * recording.num_chunks <= kMostCells;
  for (int step = 0; step <= last; ++step) {
    shown.push_back({step, step});
    if (all || step == 0) continue;
    const auto traffic = traffic_of(recording, step);
    int end = step;
    while (end < last && traffic_of(recording, end + 1) == traffic) ++end;
    if (traffic_of(recording, step - 1) != traffic || end - step < 3) continue;
    shown.back().until = end - 1;
    step = end - 1;
  }
  return shown;
}

std::string note_of(const Shown& shown) {
  if (shown.until == shown.step) return {};
  return "rounds " + std::to_string(shown.step + 1) + " to " + std::to_string(shown.until) +
         " are left out: every rank sends as many chunks in them as here";
}

// "Rank 0 sends chunk 1 to rank 1. ..."; with many ranks, the number of messages.
std::string caption_of(const Recording& recording, int index) {
  if (index == 0) return "Before the first round: what each rank brings.";
  const Step& step = recording.steps[static_cast<std::size_t>(index)];
  std::string text;
  for (int rank = 0; recording.ranks <= 4 && rank < recording.ranks; ++rank) {
    const std::string sends = sends_text(step, rank);
    if (sends.empty()) continue;
    text += (text.empty() ? "" : ". ") + std::string("Rank ") + std::to_string(rank) + " sends " +
            sends;
  }
  if (text.empty()) {
    const auto adding =
        std::ranges::count_if(step.added, [](std::size_t bytes) { return bytes > 0; });
    text = std::to_string(step.messages.size()) +
           (step.messages.size() == 1 ? " message, " : " messages, ") + std::to_string(adding) +
           (adding == 1 ? " rank adds" : " ranks add");
  }
  return text + ".";
}

}  // namespace

std::string svg_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes) {
  const Panel panel(recording);
  const std::vector<Shown> shown = shown_steps(recording);
  const int panels = static_cast<int>(shown.size());
  const int columns = columns_for(panel, panels), rows = (panels + columns - 1) / columns;
  const double wide = panel.width() + kGap, high = panel.height() + kGap;
  Notes notes = notes_of(footer(recording, link, bytes));
  if (panels <= recording.rounds())
    notes.push_back({"all", "trireme show with --html FILE writes a page that plays every round"});
  const auto draw = [&](Svg& svg, double x, double y, double) {
    std::vector<int> steps;
    for (const Shown& one : shown) steps.push_back(one.step);
    panel.define(svg, steps);
    // Column by column, so that rounds follow one another from top to bottom.
    for (int i = 0; i < panels; ++i) {
      const Shown& one = shown[static_cast<std::size_t>(i)];
      panel.draw(svg, x + (i / rows) * wide, y + (i % rows) * high, one.step, note_of(one));
    }
  };
  return svg_of(Sheet{.title = name_of(recording),
                      .about = recording.about,
                      .legend = panel.legend(),
                      .width = columns * wide - kGap,
                      .height = rows * high,
                      .notes = notes,
                      .label = 72,
                      .head = 46,
                      .above = 10,
                      .draw = draw});
}

std::string html_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes) {
  const Panel panel(recording);
  Page page{.title = name_of(recording),
            .about = recording.about,
            .legend = panel.legend(),
            .notes = footer(recording, link, bytes),
            .data = json_of(recording, link, bytes)};
  std::vector<int> steps(static_cast<std::size_t>(recording.rounds()) + 1);
  std::iota(steps.begin(), steps.end(), 0);
  Svg symbols(0, 0, "");
  panel.define(symbols, steps);
  page.pictures = "<div class=\"symbols\">\n" + symbols.finish() + "</div>\n";
  for (const int step : steps) {
    Svg svg(panel.width() + 4, panel.height() + 4, step_title(recording, step));
    panel.draw(svg, 2, 0, step);
    page.add_step(svg, caption_of(recording, step));
  }
  return html_of(page);
}

}  // namespace trireme::inline v0::show
