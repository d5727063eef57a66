#include "trireme/show/page.h"

#include <algorithm>
#include <cstddef>

#include "trireme/base/svg.h"

namespace trireme {
inline namespace v0 {
namespace show {
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
const since = [...document.querySelectorAll("[data-since]")];
const at = [...document.querySelectorAll("[data-at]")];
const last = Number(document.getElementById("round").max);
const slider = document.getElementById("round"), playing = document.getElementById("play");
let now = 0, timer = null;
function show(k) {
  now = Math.max(0, Math.min(last, k));
  if (frames.length > 1) frames.forEach((frame, i) => { frame.hidden = i !== now; });
  const see = (e, shown) => { e.style.visibility = shown ? "visible" : "hidden"; };
  since.forEach(e => see(e, Number(e.dataset.since) <= now));
  at.forEach(e => see(e, Number(e.dataset.at) === now));
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

}  // namespace

namespace {

// In JSON \/ is /: a name like "</script>" must not end the element.
std::string inside_script(std::string data) {
  for (std::size_t at = 0; (at = data.find("</", at)) != std::string::npos; at += 3) {
    data.replace(at, 2, "<\\/");
  }
  return data;
}

}  // namespace

std::string html_of(const Page& page) {
  const std::string title = svg_escaped(page.title), last = std::to_string(page.last);
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  html += "<title>" + title + "</title>\n<style>" + kStyle + "</style>\n</head>\n";
  html += "<body data-pace=\"" + std::to_string(page.milliseconds) + "\">\n";
  html += "<h1>" + title + "</h1>\n<p>" + svg_escaped(page.about) +
          "</p>\n<p><button id=\"back\">Back</button>";
  html += "<button id=\"play\">Play</button><button id=\"step\">Step</button>";
  html += "<input id=\"round\" type=\"range\" min=\"0\" max=\"" + last +
          "\" value=\"0\" aria-label=\"" + svg_escaped(page.step) + "\"></p>\n" + page.pictures;
  html += "<pre>";
  for (std::size_t begin = 0; begin < page.notes.size();) {
    const std::size_t end = std::min(page.notes.find('\n', begin), page.notes.size());
    html += svg_escaped(page.notes.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  html += "</pre>\n<script type=\"application/x-ndjson\" id=\"recording\">\n" +
          inside_script(page.data) + "</script>\n<script>" + kScript + "</script>\n";
  return html + "</body>\n</html>\n";
}

}  // namespace show
}  // namespace v0
}  // namespace trireme
