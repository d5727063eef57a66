// A self-contained HTML page that plays a picture in steps. It has buttons (play, pause, step), a
// slider, keys (space, left, right) and a line that describes the current step; with a single step,
// buttons and slider are hidden. Elements of class `frame` show one step; data-since="k" shows an
// element from step k on, data-at="k" in step k only (Moments writes these). Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/base/plot/svg.h"
#include "trireme/base/plot/svg_legend.h"

namespace trireme::inline v0::show {

struct Page {
  std::string title, about;
  std::string step = "round";              // the name of a step: "round 3 of 6"
  int first = 0;                           // the number of the first step
  std::vector<std::string> captions = {};  // per step: its title and description; none: one step
  std::vector<LegendEntry> legend = {};    // explains the marks in the pictures
  std::string pictures = {};               // HTML
  std::string notes = {};                  // plain text
  std::string data = {};                   // JSON lines, for programs that read the page
  int milliseconds = 1000;                 // between steps

  /// Adds a step that shows `picture`.
  void add_step(Svg& picture, std::string caption);
};

std::string html_of(const Page& page);
/// Wraps a picture.
std::string frame_of(const std::string& svg, bool shown = true);

/// The times, ascending, at which a page's one picture gets more elements; none: a still picture.
class Moments {
 public:
  Moments(std::vector<double> times) : times_(std::move(times)) {}
  /// Elements until end() are shown from the step of `time` on.
  void begin(Svg& svg, double time) const;
  void end(Svg& svg) const;
  /// A red line in each step, from `top` to `bottom`; the time t is at x + t * scale.
  void draw(Svg& svg, double x, double scale, double top, double bottom) const;

 private:
  std::vector<double> times_;
};

}  // namespace trireme::inline v0::show
