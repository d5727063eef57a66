#include "trireme/show/picture.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/svg.h"
#include "trireme/show/json.h"
#include "trireme/show/page.h"
#include "trireme/show/panel.h"
#include "trireme/show/text.h"

namespace trireme {
inline namespace v0 {
namespace show {
namespace {

constexpr double kMargin = 20, kGap = 26, kLine = 18;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A label and what it is of: the two columns of a footer's line.
struct Note {
  std::string label, text;
};

std::vector<Note> notes_of(const std::string& footer) {
  std::vector<Note> notes;
  for (const std::string& line : lines_of(footer)) {
    const std::size_t gap = line.find("  ");
    notes.push_back({line.substr(0, gap), line.substr(line.find_first_not_of(' ', gap))});
  }
  return notes;
}

// As few as give a page that is not much higher than wide.
int columns_for(const Panel& panel, int panels) {
  int columns = 1;
  while (columns < panels && (panel.height() + kGap) * ((panels + columns - 1) / columns) >
                                 1.3 * (panel.width() + kGap) * columns) {
    ++columns;
  }
  return columns;
}

}  // namespace

std::string svg_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes) {
  const Panel panel(recording);
  const int panels = recording.rounds() + 1;
  const int columns = columns_for(panel, panels), rows = (panels + columns - 1) / columns;
  const auto notes = notes_of(footer(recording, link, bytes));
  const double top = kMargin + 52, label = 72;
  const double grid = columns * (panel.width() + kGap) - kGap;
  double wide = std::max(grid, text_width(recording.about, 12));
  for (const Note& note : notes) wide = std::max(wide, label + text_width(note.text, 12));
  const double width = 2 * kMargin + wide;
  const double below = top + rows * (panel.height() + kGap);
  const double height = below + kLine * static_cast<double>(notes.size()) + kMargin;
  Svg svg(width, height, name_of(recording));
  svg.rectangle(0, 0, width, height, {.fill = "#ffffff"});
  svg.text(kMargin, kMargin + 14, name_of(recording), {.size = 16, .bold = true});
  svg.text(kMargin, kMargin + 33, recording.about, {.size = 12, .fill = "#555555"});
  // Down the columns: the eye follows the rounds from top to bottom.
  for (int step = 0; step < panels; ++step) {
    panel.draw(svg, kMargin + (step / rows) * (panel.width() + kGap),
               top + (step % rows) * (panel.height() + kGap), step);
  }
  for (std::size_t i = 0; i < notes.size(); ++i) {
    const double y = below + kLine * static_cast<double>(i + 1) - 4;
    svg.text(kMargin, y, notes[i].label, {.size = 12, .bold = true});
    svg.text(kMargin + label, y, notes[i].text, {.size = 12});
  }
  return svg.finish();
}

std::string html_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes) {
  const Panel panel(recording);
  std::string frames;
  for (int step = 0; step <= recording.rounds(); ++step) {
    Svg svg(panel.width() + 4, panel.height() + 4, step_title(recording, step));
    panel.draw(svg, 2, 0, step);
    frames += "<div class=\"frame\"" + std::string(step > 0 ? " hidden" : "") + ">\n" +
              svg.finish() + "</div>\n";
  }
  return html_of(Page{.title = name_of(recording),
                      .about = recording.about,
                      .last = recording.rounds(),
                      .pictures = std::move(frames),
                      .notes = footer(recording, link, bytes),
                      .data = json_of(recording, link, bytes)});
}

}  // namespace show
}  // namespace v0
}  // namespace trireme
