// Shared by the `show` commands: the options that choose the form of a drawing, and its output.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "trireme/cli/command.h"
#include "trireme/cli/files.h"

namespace trireme::inline v0::cli {

struct DrawingOptions {
  std::string svg, html;
  bool step = false, json = false;
  bool steps() const noexcept { return step && !json; }
  /// Whether the drawing goes to standard output as text.
  bool text() const noexcept { return svg.empty() && html.empty() && !step && !json; }
};

/// Adds --svg, --html and --json with these descriptions, and --step unless `moment` ("round") is
/// empty.
void add_drawing_options(Command& command, DrawingOptions& options, const std::string& json,
                         const std::string& moment = {}, const std::string& svg = "a picture",
                         const std::string& html = "a page that plays it");

/// For a list, which draws nothing: ConfigError if an option of a drawing is given. `what` is
/// listed: "algorithm".
void check_list(const DrawingOptions& options, const std::string& what);

/// Prints `heading`, then one part after each Enter.
void step_through(const std::string& heading, const std::vector<std::string>& parts,
                  const std::string& moment);

/// Writes the files that were asked for, and prints the JSON or the text; the caller steps. The
/// functions svg_of(), html_of(), json_of() and text_of() take what is drawn.
template <class... Drawn>
void output(const DrawingOptions& options, const Drawn&... drawn) {
  if (!options.svg.empty()) write_file(options.svg, svg_of(drawn...), "show");
  if (!options.html.empty()) write_file(options.html, html_of(drawn...), "show");
  if (options.json) std::fputs(json_of(drawn...).c_str(), stdout);
  if (options.text()) std::fputs(text_of(drawn...).c_str(), stdout);
}

}  // namespace trireme::inline v0::cli
