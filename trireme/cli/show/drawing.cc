#include "trireme/cli/show/drawing.h"

#include <iostream>

#include "trireme/base/refuse.h"

namespace trireme::inline v0::cli {

void add_drawing_options(Command& command, DrawingOptions& options, const std::string& json,
                         const std::string& moment, const std::string& svg,
                         const std::string& html) {
  if (!moment.empty())
    command.flag("--step", options.step, "Wait for Enter between the " + moment + "s");
  command.option("--svg", options.svg, "FILE: " + svg + " instead");
  command.option("--html", options.html, "FILE: " + html + " instead");
  command.flag("--json", options.json, json);
}

void check_list(const DrawingOptions& options, const std::string& what) {
  if (options.text()) return;
  const std::string given = options.json           ? "--json"
                            : options.step         ? "--step"
                            : !options.svg.empty() ? "--svg"
                                                   : "--html";
  refuse("show", given + " is for one " + what + ", and none is named",
         "Name one, or leave " + given + " out to list them.");
}

void step_through(const std::string& heading, const std::vector<std::string>& parts,
                  const std::string& moment) {
  std::string line;
  std::printf("%s\n", heading.c_str());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) {
      std::printf("Enter: the next %s ", moment.c_str());
      std::fflush(stdout);
      if (!std::getline(std::cin, line)) return;
    }
    std::printf("%s", parts[i].c_str());
  }
}

}  // namespace trireme::inline v0::cli
