#include "trireme/show/drawing/page.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace trireme::inline v0::show {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; }
body { font: 15px/1.5 Helvetica, Arial, "DejaVu Sans", sans-serif; margin: 24px; color: #222;
       background: #fff; }
h1 { font-size: 19px; margin: 0 0 4px; }
button { font: inherit; padding: 4px 14px; margin-right: 6px; }
input { vertical-align: middle; width: 240px; margin-right: 12px; }
#where { min-height: 3em; margin: 0; }
#count { font-weight: 600; }
.frame { margin: 14px 0; overflow-x: auto; }
.frame svg, .legend svg { max-width: 100%; height: auto; }
.symbols { position: absolute; width: 0; height: 0; overflow: hidden; }
pre { background: #f5f5f5; padding: 10px; overflow-x: auto; }
@media (prefers-color-scheme: dark) {
  body { color: #e2e2e2; background: #1c1c1c; }
  pre { background: #2a2a2a; }
}
)";

constexpr const char* kScript = R"(
const frames = [...document.querySelectorAll(".frame")];
const since = [...document.querySelectorAll("[data-since]")];
const at = [...document.querySelectorAll("[data-at]")];
const last = Number(document.getElementById("round").max);
const captions = JSON.parse(document.getElementById("captions").textContent);
const first = Number(document.getElementById("round").dataset.first);
const slider = document.getElementById("round"), playing = document.getElementById("play");
let now = 0, timer = null;
function show(k) {
  now = Math.max(0, Math.min(last, k));
  if (frames.length > 1) frames.forEach((frame, i) => { frame.hidden = i !== now; });
  const see = (e, shown) => { e.style.visibility = shown ? "visible" : "hidden"; };
  since.forEach(e => see(e, Number(e.dataset.since) <= now));
  at.forEach(e => see(e, Number(e.dataset.at) === now));
  slider.value = now;
  document.getElementById("count").textContent = `${slider.dataset.step} ${now + first} of ${last + first}`;
  document.getElementById("where").textContent = captions[now] ?? "";
  document.body.dataset.round = now;
}
function pause() {
  clearInterval(timer);
  timer = null;
  playing.textContent = "Play";
  document.body.dataset.playing = "no";
}
function play() {
  if (now === last) show(0);
  timer = setInterval(() => { show(now + 1); if (now === last) pause(); }, Number(document.body.dataset.pace));
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

// In JSON, \u003c means <: a name like "</script>" or "<!--<script>" must not end or extend the
// element.
std::string inside_script(std::string data) {
  for (std::size_t at = 0; (at = data.find('<', at)) != std::string::npos; at += 6)
    data.replace(at, 1, "\\u003c");
  return data;
}

std::string legend_of(const Page& page) {
  if (page.legend.empty()) return {};
  constexpr double kWidth = 900;
  Svg svg(kWidth, legend_height(page.legend, kWidth), "legend");
  draw_legend(svg, page.legend, 0, 0, kWidth);
  return "<div class=\"legend\">\n" + svg.finish() + "</div>\n";
}

}  // namespace

void Page::add_step(Svg& picture, std::string caption) {
  pictures += frame_of(picture.finish(), captions.empty());
  captions.push_back(std::move(caption));
}

void Moments::begin(Svg& svg, double time) const {
  if (times_.empty()) return;
  const auto since = std::lower_bound(times_.begin(), times_.end(), time);
  svg.begin_group("data-since", static_cast<int>(since - times_.begin()));
}

void Moments::end(Svg& svg) const {
  if (!times_.empty()) svg.end_group();
}

void Moments::draw(Svg& svg, double x, double scale, double top, double bottom) const {
  for (std::size_t k = 0; k < times_.size(); ++k) {
    const double at = x + times_[k] * scale;
    svg.begin_group("data-at", static_cast<int>(k));
    svg.line(at, top, at, bottom, {.stroke = "#e15759", .width = 1.5});
    svg.end_group();
  }
}

std::string frame_of(const std::string& svg, bool shown) {
  return "<div class=\"frame\"" + std::string(shown ? "" : " hidden") + ">\n" + svg + "</div>\n";
}

std::string html_of(const Page& page) {
  const std::size_t last = std::max<std::size_t>(page.captions.size(), 1) - 1;
  const std::string title = svg_escaped(page.title);
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  html += "<title>" + title + "</title>\n<style>" + kStyle + "</style>\n</head>\n";
  html += "<body data-pace=\"" + std::to_string(page.milliseconds) + "\">\n";
  html += "<h1>" + title + "</h1>\n<p>" + svg_escaped(page.about) + "</p>\n";
  html += last > 0 ? "<p>" : "<p hidden>";  // nothing to play
  html += "<button id=\"back\">Back</button>";
  html += "<button id=\"play\">Play</button><button id=\"step\">Step</button>";
  html += "<input id=\"round\" type=\"range\" min=\"0\" max=\"" + std::to_string(last) +
          "\" value=\"0\" data-first=\"" + std::to_string(page.first) + "\" data-step=\"" +
          svg_escaped(page.step) + "\" aria-label=\"" + svg_escaped(page.step) +
          "\"><span id=\"count\"></span></p>\n";
  html += "<p id=\"where\" aria-live=\"polite\"></p>\n" + legend_of(page) + page.pictures;
  html += "<pre>";
  for (std::size_t begin = 0; begin < page.notes.size();) {
    const std::size_t end = std::min(page.notes.find('\n', begin), page.notes.size());
    html += svg_escaped(page.notes.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  html += "</pre>\n<script type=\"application/json\" id=\"captions\">" +
          inside_script(nlohmann::json(page.captions).dump()) +
          "</script>\n<script type=\"application/x-ndjson\" id=\"recording\">\n" +
          inside_script(page.data) + "</script>\n<script>" + kScript + "</script>\n";
  return html + "</body>\n</html>\n";
}

}  // namespace trireme::inline v0::show
