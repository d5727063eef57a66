// Draws the trees of `trireme show tree-sum`: one per number of ranks, leaves at the bottom.
#include <algorithm>
#include <string>
#include <vector>

#include "trireme/base/words.h"
#include "trireme/show/collective/tree_sum.h"
#include "trireme/show/drawing/page.h"
#include "trireme/show/drawing/panel.h"
#include "trireme/show/drawing/sheet.h"

namespace trireme::inline v0::show {
namespace {

using kernel::LeafRange;

constexpr double kGap = 36, kLeaf = 44, kLevel = 46, kNode = 13, kHead = 30;

int depth_of(LeafRange node) {
  return node.count == 1 ? 0 : 1 + std::max(depth_of(left_of(node)), depth_of(right_of(node)));
}

class Picture {
 public:
  Picture(const TreeSum& sum, int most_ranks) : sum_(sum), most_ranks_(most_ranks) {}
  double width() const { return std::max(kLeaf * sum_.leaves, 1.1 * text_width("16 ranks", 14)); }
  double height() const { return kHead + kLevel * depth_of(root()) + 2 * kNode + 8; }

  void draw(Svg& svg, double x, double y) const {
    svg.text(x, y + 14, counted(sum_.ranks, "rank"), {.size = 14, .bold = true});
    for (const TreeAddition& one : sum_.additions) draw_edges(svg, x, y, one);
    for (std::uint32_t leaf = 0; leaf < sum_.leaves; ++leaf)
      draw_node(svg, x, y, {leaf, 1}, sum_.rank_of({leaf, 1}), "L" + std::to_string(leaf));
    for (const TreeAddition& one : sum_.additions) {
      svg.begin_group("data-since", one.step);
      draw_node(svg, x, y, one.node, one.rank, std::to_string(one.step));
      svg.end_group();
    }
  }

 private:
  LeafRange root() const { return {0, sum_.leaves}; }
  double x_of(LeafRange node) const { return kLeaf * (node.first + node.count / 2.0); }
  double y_of(LeafRange node) const {
    return kHead + kNode + kLevel * (depth_of(root()) - depth_of(node));
  }
  std::string colour(int rank) const { return colour_of(rank, most_ranks_); }

  void draw_edges(Svg& svg, double x, double y, const TreeAddition& one) const {
    svg.begin_group("data-since", one.step);
    for (const LeafRange child : {left_of(one.node), right_of(one.node)}) {
      const int from = sum_.rank_of(child);
      const bool travels = from != one.rank;
      svg.line(x + x_of(child), y + y_of(child), x + x_of(one.node), y + y_of(one.node),
               {.stroke = travels ? colour(from) : "#999999",
                .width = travels ? 3.0 : 1.2,
                .dashes = travels ? "7 4" : ""});
    }
    svg.end_group();
  }

  void draw_node(Svg& svg, double x, double y, LeafRange node, int rank,
                 const std::string& label) const {
    svg.circle(x + x_of(node), y + y_of(node), kNode,
               {.stroke = colour(rank), .width = 3, .fill = "#ffffff"});
    svg.text(x + x_of(node), y + y_of(node) + 4, label, {.size = 11, .anchor = "middle"});
  }

  const TreeSum& sum_;
  const int most_ranks_;
};

int most_ranks(const std::vector<TreeSum>& sums) {
  return std::ranges::max_element(sums, {}, &TreeSum::ranks)->ranks;
}

int most_steps(const std::vector<TreeSum>& sums) {
  return std::ranges::max_element(sums, {}, &TreeSum::steps)->steps();
}

// The ranks' colours; they must outlive the legend.
std::vector<std::string> colours_of(int ranks) {
  std::vector<std::string> colours;
  for (int rank = 0; rank < ranks; ++rank) colours.push_back(colour_of(rank, ranks));
  return colours;
}

std::vector<LegendEntry> legend_of(const std::vector<std::string>& colours) {
  using Sample = LegendEntry::Sample;
  std::vector<LegendEntry> entries;
  for (std::size_t rank = 0; rank < colours.size(); ++rank)
    entries.push_back({Sample::Box,
                       {.stroke = colours[rank], .width = 3, .fill = "#ffffff"},
                       "rank " + std::to_string(rank)});
  entries.push_back({Sample::None, {}, "L3: leaf 3, on the rank that computes it"});
  entries.push_back({Sample::None, {}, "2: the two below are added in step 2, by this rank"});
  if (colours.size() > 1)
    entries.push_back({Sample::Line,
                       {.stroke = colours[1], .width = 3, .dashes = "7 4"},
                       "a sum that is sent to the rank that adds it"});
  return entries;
}

const char* const kAbout =
    "Only siblings of one tree are added, whoever adds them: the sum has the same bits on any "
    "number of ranks.";

Notes notes_of(const std::vector<TreeSum>& sums) {
  Notes notes;
  for (const TreeSum& sum : sums)
    notes.emplace_back("", counted(sum.ranks, "rank") + ": " + sum_text(sum));
  return notes;
}

}  // namespace

std::string svg_of(const std::vector<TreeSum>& sums) {
  const auto colours = colours_of(most_ranks(sums));
  const int panels = static_cast<int>(sums.size());
  std::vector<Picture> pictures;
  for (const TreeSum& sum : sums) pictures.emplace_back(sum, most_ranks(sums));
  const double wide = pictures.front().width(), high = pictures.front().height() + kGap;
  const int columns = std::clamp(static_cast<int>(900 / wide), 1, panels);
  const int rows = (panels + columns - 1) / columns;
  const auto draw = [&](Svg& svg, double x, double y, double) {
    for (int i = 0; i < panels; ++i)
      pictures[static_cast<std::size_t>(i)].draw(svg, x + i % columns * (wide + kGap),
                                                 y + i / columns * high);
  };
  return svg_of(Sheet{.title = name_of(sums),
                      .about = kAbout,
                      .legend = legend_of(colours),
                      .width = columns * (wide + kGap) - kGap,
                      .height = rows * high - 30,
                      .notes = notes_of(sums),
                      .above = 10,
                      .below = 40,
                      .draw = draw});
}

std::string html_of(const std::vector<TreeSum>& sums) {
  const auto colours = colours_of(most_ranks(sums));
  Page page{.title = name_of(sums),
            .about = kAbout,
            .step = "step",
            .legend = legend_of(colours),
            .notes = text_of(sums),
            .data = json_of(sums)};
  const Picture first(sums.front(), most_ranks(sums));
  const double high = first.height() + kGap;
  Svg svg(first.width() + 4, high * static_cast<double>(sums.size()), name_of(sums));
  double y = 0;
  for (const TreeSum& sum : sums) {
    Picture(sum, most_ranks(sums)).draw(svg, 2, y);
    y += high;
  }
  page.pictures = frame_of(svg.finish());
  page.captions.push_back("Before the first addition: each rank has computed its leaves.");
  for (int step = 1; step <= most_steps(sums); ++step) {
    std::string caption;
    for (const TreeSum& sum : sums) {
      const std::string text = step_text(sum, step);
      if (text.empty()) continue;
      caption +=
          (caption.empty() ? "On " : " On ") + counted(sum.ranks, "rank") + ", " + text + ".";
    }
    page.captions.push_back(caption);
  }
  return html_of(page);
}

}  // namespace trireme::inline v0::show
