// A self-contained HTML page that plays a picture in steps: buttons play, pause, step, a slider;
// keys space, left, right; a line says which step is shown and what happens in it. What belongs to
// one step is a `.frame`; an element with data-since="k" is seen from step k on, one with
// data-at="k" in step k alone. Pure.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/svg_legend.h"

namespace trireme {
inline namespace v0 {
namespace show {

struct Page {
  std::string title, about;
  int last = 0;                            // the steps are 0 ... last
  std::string step = "round";              // what one is: "round 3 of 6"
  int first = 0;                           // the number that the first is called by
  std::vector<std::string> captions = {};  // of each step, where it is and what happens in it
  std::vector<LegendEntry> legend = {};    // what the pictures' marks mean
  std::string pictures = {};               // HTML
  std::string notes = {};                  // text, as it stands
  std::string data = {};                   // JSON lines, for programs that read the page
  int milliseconds = 1000;                 // between steps
};

std::string html_of(const Page& page);
/// The picture of one step.
std::string frame_of(const std::string& svg, bool shown);

}  // namespace show
}  // namespace v0
}  // namespace trireme
