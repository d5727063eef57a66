#include "trireme/show/picture.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/svg.h"
#include "trireme/show/json.h"
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

namespace {

constexpr const char* kStyle = R"(
body { font: 15px/1.5 Helvetica, Arial, "DejaVu Sans", sans-serif; margin: 24px; color: #222;
       background: #fff; }
h1 { font-size: 19px; margin: 0 0 4px; }
button { font: inherit; padding: 4px 14px; margin-right: 6px; }
input { vertical-align: middle; width: 240px; }
.frame { margin: 14px 0; overflow-x: auto; }
.frame svg { max-width: 100%; height: auto; }
pre { background: #f5f5f5; padding: 10px; overflow-x: auto; }
)";

constexpr const char* kScript = R"(
const frames = [...document.querySelectorAll(".frame")];
const slider = document.getElementById("round"), playing = document.getElementById("play");
let now = 0, timer = null;
function show(k) {
  now = Math.max(0, Math.min(frames.length - 1, k));
  frames.forEach((frame, i) => { frame.hidden = i !== now; });
  slider.value = now;
  document.body.dataset.round = now;
}
function pause() {
  clearInterval(timer);
  timer = null;
  playing.textContent = "Play";
  document.body.dataset.playing = "no";
}
function play() {
  if (now === frames.length - 1) show(0);
  timer = setInterval(() => { show(now + 1); if (now === frames.length - 1) pause(); }, 1000);
  playing.textContent = "Pause";
  document.body.dataset.playing = "yes";
}
const toggle = () => timer === null ? play() : pause();
const step = by => { pause(); show(now + by); };
playing.onclick = toggle;
document.getElementById("back").onclick = () => step(-1);
document.getElementById("step").onclick = () => step(1);
slider.oninput = () => { pause(); show(Number(slider.value)); };
document.onkeydown = event => {
  if (event.key === "ArrowRight") step(1);
  else if (event.key === "ArrowLeft") step(-1);
  else if (event.key === " " && event.target.tagName !== "BUTTON") toggle();
  else return;
  event.preventDefault();
};
pause();
show(0);
)";

}  // namespace

std::string html_of(const Recording& recording, const plan::LinkCost& link, std::size_t bytes) {
  const Panel panel(recording);
  const std::string title = svg_escaped(name_of(recording));
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  html += "<title>" + title + "</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n";
  html += "<h1>" + title + "</h1>\n<p>" + svg_escaped(recording.about) +
          "</p>\n<p><button id=\"back\">Back</button>";
  html += "<button id=\"play\">Play</button><button id=\"step\">Step</button>";
  html += "<input id=\"round\" type=\"range\" min=\"0\" max=\"" +
          std::to_string(recording.rounds()) + "\" value=\"0\" aria-label=\"round\"></p>\n";
  for (int step = 0; step <= recording.rounds(); ++step) {
    Svg svg(panel.width() + 4, panel.height() + 4, step_title(recording, step));
    panel.draw(svg, 2, 0, step);
    html += "<div class=\"frame\"" + std::string(step > 0 ? " hidden" : "") + ">\n" + svg.finish() +
            "</div>\n";
  }
  html += "<pre>";
  for (const std::string& line : lines_of(footer(recording, link, bytes))) {
    html += svg_escaped(line) + "\n";
  }
  html += "</pre>\n<script type=\"application/x-ndjson\" id=\"recording\">\n" +
          json_of(recording, link, bytes) + "</script>\n<script>" + kScript + "</script>\n";
  return html + "</body>\n</html>\n";
}

}  // namespace show
}  // namespace v0
}  // namespace trireme
