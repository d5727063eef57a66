// trireme show tree-sum: the order in which leaves are added, on several rank counts.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "trireme/command/command.h"
#include "trireme/command/files.h"
#include "trireme/show/tree_sum.h"

namespace trireme::inline v0::command {
namespace {

struct ShowTreeSumOptions {
  std::vector<int> ranks = {1, 2, 3, 4};
  std::uint32_t leaves = 8;
  std::string svg, html;
  bool json = false;
};

int show_tree_sum(const ShowTreeSumOptions& options) {
  std::vector<show::TreeSum> sums;
  for (const int ranks : options.ranks)
    sums.push_back(show::record_tree_sum(ranks, options.leaves));
  if (!options.svg.empty()) write_file(options.svg, show::svg_of(sums), "show");
  if (!options.html.empty()) write_file(options.html, show::html_of(sums), "show");
  if (options.json) {
    std::fputs(show::json_of(sums).c_str(), stdout);
  } else if (options.svg.empty() && options.html.empty()) {
    std::fputs(show::text_of(sums).c_str(), stdout);
  }
  return 0;
}

}  // namespace

void add_show_tree_sum(CLI::App& show, Invocation& invocation) {
  auto options = std::make_shared<ShowTreeSumOptions>();
  CLI::App* command = show.add_subcommand(
      "tree-sum", "Draw which micro-batches' gradients are added in which order");
  command->add_option("--ranks", options->ranks, "How many ranks; several: one tree each")
      ->delimiter(',')
      ->expected(1, 8)
      ->capture_default_str();
  command->add_option("--leaves", options->leaves, "How many micro-batches")->capture_default_str();
  command->add_option("--svg", options->svg, "FILE: a picture instead");
  command->add_option("--html", options->html, "FILE: a page that plays it instead");
  command->add_flag("--json", options->json, "JSON lines: every addition with its rank");
  command->footer("Example:\n  trireme show tree-sum --ranks 1,2,3,4 --leaves 8");
  command->callback([options, &invocation] {
    invocation.action = [options] { return show_tree_sum(*options); };
  });
}

}  // namespace trireme::inline v0::command
