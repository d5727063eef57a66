// A self-contained HTML page that plays a picture in steps. It has buttons (play, pause, step), a
// slider, keys (space, left, right) and a line that describes the current step; with a single step,
// buttons and slider are hidden. Elements of class `frame` show one step; data-since="k" shows an
// element from step k on, data-at="k" in step k only. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/plot/svg_legend.h"

namespace trireme::inline v0::show {

struct Page {
  std::string title, about;
  int last = 0;                            // the steps are 0 ... last
  std::string step = "round";              // the name of a step: "round 3 of 6"
  int first = 0;                           // the number of the first step
  std::vector<std::string> captions = {};  // per step: its title and description
  std::vector<LegendEntry> legend = {};    // explains the marks in the pictures
  std::string pictures = {};               // HTML
  std::string notes = {};                  // plain text
  std::string data = {};                   // JSON lines, for programs that read the page
  int milliseconds = 1000;                 // between steps
};

std::string html_of(const Page& page);
/// Wraps the picture of one step.
std::string frame_of(const std::string& svg, bool shown);

}  // namespace trireme::inline v0::show
