// trireme show tree-sum: the order in which leaves are added, on several rank counts.
#include <cstdint>
#include <vector>

#include "trireme/cli/show/drawing.h"
#include "trireme/show/collective/tree_sum.h"

namespace trireme::inline v0::cli {
namespace {

struct ShowTreeSumOptions {
  std::vector<int> ranks = {1, 2, 3, 4};
  std::uint32_t leaves = 8;
  DrawingOptions drawing;
};

}  // namespace

void declare_show_tree_sum(Command& command) {
  auto& options = command.keep<ShowTreeSumOptions>();
  command.about("Draw which micro-batches' gradients are added in which order")
      .footer("Example:\n  trireme show tree-sum --ranks 1,2,3,4 --leaves 8");
  command.option("--ranks", options.ranks, "How many ranks; several: one tree each")
      .values(1, 8, ',');
  command.option("--leaves", options.leaves, "How many micro-batches");
  add_drawing_options(command, options.drawing, "JSON lines: every addition with its rank");
  command.run([&options] {
    std::vector<show::TreeSum> sums;
    for (const int ranks : options.ranks)
      sums.push_back(show::record_tree_sum(ranks, options.leaves));
    output(options.drawing, sums);
    return 0;
  });
}

}  // namespace trireme::inline v0::cli
