// A self-contained HTML page that plays a picture in steps: buttons play, pause, step, a slider;
// keys space, left, right. What belongs to one step is a `.frame`; an element with data-since="k"
// is seen from step k on, one with data-at="k" in step k alone. Pure.
#pragma once

#include <string>

namespace trireme {
inline namespace v0 {
namespace show {

struct Page {
  std::string title, about;
  int last = 0;                // the steps are 0 ... last
  std::string step = "round";  // what one is, for who cannot see the slider
  std::string pictures;        // HTML
  std::string notes;           // text, as it stands
  std::string data;            // JSON lines, for programs that read the page
  int milliseconds = 1000;     // between steps
};

std::string html_of(const Page& page);

}  // namespace show
}  // namespace v0
}  // namespace trireme
