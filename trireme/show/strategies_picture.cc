// Draws the boxes and lanes of `trireme show strategies NAME`.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "trireme/show/drawing/page.h"
#include "trireme/show/drawing/sheet.h"
#include "trireme/show/strategies.h"

namespace trireme::inline v0::show {
namespace {

using plan::Between;
using plan::Moved;
using plan::Share;

constexpr double kLabels = 104, kCell = 24, kRow = 16, kGapX = 26, kTitle = 20;
constexpr double kPadding = 8, kBetweenRows = 92, kLane = 26, kWords = 18, kWordsSize = 12;
constexpr std::array kKinds = {std::pair{"weights", "#4a90d9"}, std::pair{"gradients", "#f08c2e"},
                               std::pair{"optimizer state", "#59a55b"}};
constexpr std::string_view kActivations = "#8e63c7", kEmpty = "#f4f4f4", kEdge = "#aaaaaa";

std::string_view colour_of(Moved moved) {
  return moved == Moved::Weights     ? kKinds[0].second
         : moved == Moved::Gradients ? kKinds[1].second
                                     : kActivations;
}

class StrategyPicture {
 public:
  explicit StrategyPicture(const StrategyDrawing& drawing)
      : strategy_(drawing.strategy),
        ranks_(drawing.ranks),
        layers_(strategy_.rank.weights == Share::Layers ? std::max(4, ranks_) : 4),
        box_(layers_ * kCell + 2 * kPadding) {
    servers_high_ = strategy_.servers > 0 ? box_height() + kBetweenRows : 0;
  }

  double width() const {
    double wide = row_width(std::max(ranks_, strategy_.servers)) + kGapX;
    int number = 0;
    for (const plan::Movement& move : strategy_.moves)
      wide = std::max(wide, text_width(words_of(move, ++number), kWordsSize));
    return kLabels + wide;
  }
  double height() const {
    return servers_high_ + 26 + box_height() + 14 + lanes_high() +
           static_cast<double>(strategy_.moves.size()) * kWords + 10;
  }
  /// `only`: the movement that is drawn; -1: all.
  void draw(Svg& svg, double x, double y, int only) const {
    const double top = y + servers_high_ + 26;
    draw_labels(svg, x, top);
    if (strategy_.hosts > 1) draw_hosts(svg, x, top);
    const int of = strategy_.cut_within_host ? ranks_ / strategy_.hosts : ranks_;
    for (int i = 0; i < ranks_; ++i)
      draw_box(svg, left(x, i), top,
               (strategy_.servers > 0 ? "worker " : "rank ") + std::to_string(i), strategy_.rank,
               i % of, of);
    if (strategy_.servers > 0) draw_labels(svg, x, y);
    for (int i = 0; i < strategy_.servers; ++i)
      draw_box(svg, server_left(x, i), y, "server " + std::to_string(i), strategy_.server, i,
               strategy_.servers);
    const double words = top + box_height() + 18 + lanes_high();
    double lane = top + box_height() + 14 + kLane - 6;
    int number = 0;
    for (const plan::Movement& move : strategy_.moves) {
      const bool shown = only < 0 || only == number;
      ++number;
      if (shown)
        svg.text(x + kLabels, words + number * kWords, words_of(move, number),
                 {.size = kWordsSize});
      if (is_of_servers(move)) {
        if (shown) draw_server_arrows(svg, x, y, top, move, number);
        continue;
      }
      if (shown) draw_lane(svg, x, top + box_height(), lane, move, number);
      lane += kLane;
    }
  }
  std::vector<LegendEntry> legend() const {
    using Sample = LegendEntry::Sample;
    std::vector<LegendEntry> entries;
    for (const auto& [name, colour] : kKinds)
      entries.push_back({Sample::Box, {.stroke = kEdge, .fill = colour}, name});
    entries.push_back({Sample::Box, {.stroke = kEdge, .fill = kEmpty}, "held by others"});
    entries.push_back({Sample::None, {}, std::to_string(layers_) + " columns: the layers"});
    if (strategy_.rank.weights == Share::Layers || strategy_.same_batch)
      entries.push_back({Sample::Line, {.stroke = kActivations, .width = 3}, "activations"});
    return entries;
  }

 private:
  static bool is_of_servers(const plan::Movement& move) {
    return move.between == Between::RanksToServers || move.between == Between::ServersToRanks;
  }
  double lanes_high() const {
    return kLane * static_cast<double>(std::ranges::count_if(
                       strategy_.moves, [](const auto& move) { return !is_of_servers(move); }));
  }
  static double box_height() { return kTitle + 3 * (kRow + 5) + kPadding; }
  double row_width(int boxes) const { return boxes * (box_ + kGapX) - kGapX; }
  // The rows of ranks and of servers are centred on each other.
  double first_left(double x, int boxes) const {
    return x + kLabels + (row_width(std::max(ranks_, strategy_.servers)) - row_width(boxes)) / 2;
  }
  double left(double x, int rank) const { return first_left(x, ranks_) + rank * (box_ + kGapX); }
  double middle(double x, int rank) const { return left(x, rank) + box_ / 2; }
  double server_left(double x, int server) const {
    return first_left(x, strategy_.servers) + server * (box_ + kGapX);
  }

  static void draw_labels(Svg& svg, double x, double top) {
    for (int kind = 0; kind < 3; ++kind)
      svg.text(x + kLabels - 10, top + kTitle + kind * (kRow + 5) + 12,
               kKinds[static_cast<std::size_t>(kind)].first, {.size = 12, .anchor = "end"});
  }
  void draw_hosts(Svg& svg, double x, double top) const {
    const int each = ranks_ / strategy_.hosts;
    for (int host = 0; host < strategy_.hosts; ++host) {
      const double begin = left(x, host * each) - 7;
      svg.rectangle(begin, top - 22, each * (box_ + kGapX) - kGapX + 14, box_height() + 29,
                    {.stroke = "#888888", .dashes = "4 3"}, 6);
      svg.text(begin + 7, top - 8, "host " + std::to_string(host), {.size = 11, .fill = "#666666"});
    }
  }
  void draw_box(Svg& svg, double x, double y, const std::string& name, const plan::Holding& holding,
                int index, int of) const {
    svg.rectangle(x, y, box_, box_height(), {.stroke = "#333333", .fill = "#ffffff"}, 4);
    svg.text(x + box_ / 2, y + 15, name, {.size = 12, .anchor = "middle", .bold = true});
    const std::array shares = {holding.weights, holding.gradients, holding.optimizer};
    for (std::size_t kind = 0; kind < 3; ++kind)
      for (int layer = 0; layer < layers_; ++layer)
        draw_cell(svg, x + kPadding + layer * kCell,
                  y + kTitle + static_cast<double>(kind) * (kRow + 5), kKinds[kind].second,
                  part_of(shares[kind], layer, index, of));
  }
  /// The part of a layer that is held: from, to in [0, 1].
  std::pair<double, double> part_of(Share share, int layer, int index, int of) const {
    if (share == Share::Whole) return {0, 1};
    if (share == Share::Slice)
      return {static_cast<double>(index) / of, static_cast<double>(index + 1) / of};
    return {0, share == Share::Layers && layer * of / layers_ == index ? 1 : 0};
  }
  static void draw_cell(Svg& svg, double x, double y, std::string_view colour,
                        std::pair<double, double> part) {
    const double wide = kCell - 3;
    svg.rectangle(x, y, wide, kRow, {.fill = kEmpty});
    if (part.second > part.first)
      svg.rectangle(x + part.first * wide, y, (part.second - part.first) * wide, kRow,
                    {.fill = colour});
    svg.rectangle(x, y, wide, kRow, {.stroke = kEdge});
  }

  static void arrow(Svg& svg, std::pair<double, double> from, std::pair<double, double> to,
                    std::string_view colour) {
    const double length = std::hypot(to.first - from.first, to.second - from.second);
    const double ux = (to.first - from.first) / length, uy = (to.second - from.second) / length;
    svg.line(from.first, from.second, to.first - 6 * ux, to.second - 6 * uy,
             {.stroke = colour, .width = 1.6});
    const std::array<std::pair<double, double>, 4> head = {
        to,
        {to.first - 9 * ux - 4 * uy, to.second - 9 * uy + 4 * ux},
        {to.first - 9 * ux + 4 * uy, to.second - 9 * uy - 4 * ux},
        to};
    svg.path(head, {.stroke = colour, .fill = colour});
  }

  // One line that joins `ranks`, with an arrow into each of their boxes.
  void draw_bus(Svg& svg, double x, double bottom, double lane, const std::vector<int>& ranks,
                const plan::Movement& move, double shift) const {
    const std::string_view colour = colour_of(move.moved);
    svg.line(middle(x, ranks.front()) + shift, lane, middle(x, ranks.back()) + shift, lane,
             {.stroke = colour, .width = 3});
    for (const int rank : ranks)
      arrow(svg, {middle(x, rank) + shift, lane}, {middle(x, rank) + shift, bottom + 2}, colour);
  }
  void draw_chain(Svg& svg, double x, double lane, bool forward, std::string_view colour) const {
    for (int i = 0; i + 1 < ranks_; ++i) {
      const double a = middle(x, i) + 12, b = middle(x, i + 1) - 12;
      arrow(svg, {forward ? a : b, lane}, {forward ? b : a, lane}, colour);
    }
    for (int i = 0; i < ranks_; ++i) svg.circle(middle(x, i), lane, 4, {.fill = colour});
  }
  void draw_lane(Svg& svg, double x, double bottom, double lane, const plan::Movement& move,
                 int number) const {
    const double shift = (number - 1.5) * 14;  // arrows of other lanes stay apart
    const int each = ranks_ / strategy_.hosts;
    const auto bus = [&](int first, int step, int count, double own_shift, double own_lane) {
      std::vector<int> ranks;
      for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
      draw_bus(svg, x, bottom, own_lane, ranks, move, own_shift);
    };
    const std::string_view colour = colour_of(move.moved);
    if (move.between == Between::AllRanks) bus(0, 1, ranks_, shift, lane);
    if (move.between == Between::RanksOfAHost)
      for (int host = 0; host < strategy_.hosts; ++host) bus(host * each, 1, each, shift, lane);
    if (move.between == Between::SameRanksOfHosts)
      for (int i = 0; i < each; ++i) bus(i, each, strategy_.hosts, shift, lane - 5 * i);
    if (move.between == Between::ToTheNextRank) draw_chain(svg, x, lane, true, colour);
    if (move.between == Between::ToThePreviousRank) draw_chain(svg, x, lane, false, colour);
    if (move.between == Between::Neighbours) {
      draw_chain(svg, x, lane, true, colour);
      const double last = middle(x, ranks_ - 1);
      svg.line(last, lane, last, lane - 14, {.stroke = colour, .width = 1.6});
      svg.line(last, lane - 14, middle(x, 0), lane - 14, {.stroke = colour, .width = 1.6});
      arrow(svg, {middle(x, 0), lane - 14}, {middle(x, 0), lane - 3}, colour);
    }
    draw_number(svg, x, lane + 4, number, colour);
  }
  // Beside a lane, the number of its line of words.
  static void draw_number(Svg& svg, double x, double y, int number, std::string_view colour) {
    svg.text(x + kLabels - 10, y, std::to_string(number),
             {.size = 12, .fill = colour, .anchor = "end", .bold = true});
  }
  static std::string words_of(const plan::Movement& move, int number) {
    return std::to_string(number) + ". " + std::string(plan::describe(move.between)) + ": " +
           move.what;
  }
  void draw_server_arrows(Svg& svg, double x, double y, double top, const plan::Movement& move,
                          int number) const {
    const bool up = move.between == Between::RanksToServers;
    const double shift = up ? -7 : 7;
    // Arrows of all workers end at the server's box.
    const double apart = std::min(18.0, (box_ - 4 * 7) / std::max(1, ranks_ - 1));
    for (int i = 0; i < ranks_; ++i)
      for (int server = 0; server < strategy_.servers; ++server) {
        const std::pair low{middle(x, i) + shift, top - 2};
        const double spread = (i - (ranks_ - 1) / 2.0) * apart;
        const std::pair high{server_left(x, server) + box_ / 2 + spread + shift,
                             y + box_height() + 2};
        arrow(svg, up ? low : high, up ? high : low, colour_of(move.moved));
      }
    draw_number(svg, x, y + box_height() + 34 + kWords * (number - 1), number,
                colour_of(move.moved));
  }

  const plan::NamedStrategy& strategy_;
  int ranks_, layers_;
  double box_, servers_high_ = 0;
};

}  // namespace

std::string svg_of(const StrategyDrawing& drawing) {
  const StrategyPicture picture(drawing);
  return svg_of(
      Sheet{.title = drawing.strategy.name,
            .about = drawing.strategy.about + ".",
            .legend = picture.legend(),
            .width = picture.width(),
            .height = picture.height(),
            .draw = [&](Svg& svg, double x, double y, double) { picture.draw(svg, x, y, -1); }});
}

std::string html_of(const StrategyDrawing& drawing) {
  const StrategyPicture picture(drawing);
  const auto& moves = drawing.strategy.moves;
  Page page{.title = drawing.strategy.name,
            .about = drawing.strategy.about + ".",
            .step = "movement",
            .legend = picture.legend(),
            .notes = text_of(drawing),
            .data = json_of(drawing)};
  const auto add = [&](int movement, const std::string& caption) {
    Svg svg(picture.width() + 8, picture.height() + 4, page.title);
    picture.draw(svg, 4, 2, movement);
    page.add_step(svg, caption);
  };
  const int none = static_cast<int>(moves.size());
  add(none, "What each process holds.");
  for (int i = 0; i < none; ++i) add(i, moves[static_cast<std::size_t>(i)].what + ".");
  return html_of(page);
}

}  // namespace trireme::inline v0::show
