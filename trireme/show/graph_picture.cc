#include "trireme/show/graph_picture.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "trireme/base/plot/svg.h"
#include "trireme/base/plot/svg_legend.h"
#include "trireme/base/utf8.h"
#include "trireme/base/words.h"
#include "trireme/show/drawing/panel.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

constexpr double kMargin = 20, kGap = 44, kBoxHeight = 34, kRow = 48, kLane = 8, kSize = 10;
constexpr double kHead = 66;  // above the bands' lanes: title and the stages' names

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::string bytes_of(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

struct Box {
  int column = 0, row = 0;
  double x = 0, y = 0, width = 0;
};

struct Bus {  // line of a value that skips columns
  int first = 0, last = 0, lane = 0;
};

class Layout {
 public:
  Layout(const plan::Graph& graph, const plan::GraphPartition& partition)
      : graph_(graph), partition_(partition), boxes_(graph.nodes.size()) {
    place_columns();
    place_rows();
    place_lanes();
    place();
  }

  void draw(Svg& svg) const {
    draw_bands(svg);
    for (std::size_t i = 0; i < graph_.values.size(); ++i) draw_value(svg, i);
    for (std::size_t i = 0; i < boxes_.size(); ++i) draw_node(svg, i);
  }
  double width() const { return width_; }
  double height() const { return top_ + kRow * rows_ + 34; }

 private:
  // Each node goes to the right of all nodes that it reads and of the stages before its own.
  void place_columns() {
    int first = 0;
    for (const plan::GraphStage& stage : partition_.stages) {
      for (int node : stage.nodes) boxes_[at(node)].column = first;
      // Takes as many rounds as the longest path, which is short: graphs are small.
      for (bool moved = true; moved;) {
        moved = false;
        for (const plan::GraphValue& value : graph_.values) {
          for (int to : value.to) {
            const bool here = partition_.stage_of[at(to)] == partition_.stage_of[at(value.from)];
            const int column = boxes_[at(value.from)].column + 1;
            if (!here || boxes_[at(to)].column >= column) continue;
            boxes_[at(to)].column = column;
            moved = true;
          }
        }
      }
      int last = first;
      for (int node : stage.nodes) last = std::max(last, boxes_[at(node)].column);
      bands_.emplace_back(first, last);
      first = last + 1;
    }
  }

  // Puts nodes near the middle of the nodes that they read, so that few lines cross.
  void place_rows() {
    std::vector<double> wish(boxes_.size(), 0);
    for (int column = 0; column <= bands_.back().second; ++column) {
      std::vector<std::size_t> here;
      for (std::size_t node = 0; node < boxes_.size(); ++node) {
        if (boxes_[node].column != column) continue;
        double sum = 0;
        int count = 0;
        for (const plan::GraphValue& value : graph_.values) {
          if (std::ranges::find(value.to, static_cast<int>(node)) == value.to.end()) continue;
          sum += boxes_[at(value.from)].row;
          ++count;
        }
        wish[node] = count > 0 ? sum / count : 0;
        here.push_back(node);
      }
      std::ranges::stable_sort(here,
                               [&](std::size_t a, std::size_t b) { return wish[a] < wish[b]; });
      for (std::size_t i = 0; i < here.size(); ++i) boxes_[here[i]].row = static_cast<int>(i);
      rows_ = std::max(rows_, static_cast<int>(here.size()));
    }
  }

  // Each bus goes into the lowest lane that is free over its columns.
  void place_lanes() {
    for (const plan::GraphValue& value : graph_.values) {
      Bus bus{boxes_[at(value.from)].column, 0, -1};
      for (int to : value.to) bus.last = std::max(bus.last, boxes_[at(to)].column);
      if (bus.last > bus.first + 1) {
        bus.lane = 0;
        const auto taken = [&](const Bus& other) {
          return other.lane == bus.lane && other.first < bus.last && bus.first < other.last;
        };
        while (std::ranges::any_of(buses_, taken)) ++bus.lane;
        lanes_ = std::max(lanes_, bus.lane + 1);
      }
      buses_.push_back(bus);
    }
  }

  void place() {
    top_ = kHead + kLane * lanes_ + 16;
    double x = kMargin;
    for (std::size_t band = 0; band < bands_.size(); ++band) {
      // A band is at least as wide as its heading.
      const double begin = x;
      for (int column = bands_[band].first; column <= bands_[band].second; ++column) {
        double wide = 0;
        for (std::size_t node = 0; node < boxes_.size(); ++node) {
          if (boxes_[node].column != column) continue;
          boxes_[node].width =
              std::max(text_width(graph_.nodes[node].name, kSize),
                       text_width(duration_text(graph_.nodes[node].seconds), kSize)) +
              12;
          wide = std::max(wide, boxes_[node].width);
        }
        for (std::size_t node = 0; node < boxes_.size(); ++node) {
          if (boxes_[node].column != column) continue;
          boxes_[node].x = x + (wide - boxes_[node].width) / 2;
          boxes_[node].y = top_ + kRow * boxes_[node].row;
        }
        x += wide + kGap;
      }
      x = std::max(x, begin + 1.1 * text_width(heading(band), 11) + kGap);  // bold is wider
      edges_.push_back(x - kGap / 2 - 2);
    }
    width_ = x - kGap + kMargin;
    edges_.back() = width_ - kMargin + 8;
  }

  std::string heading(std::size_t band) const {
    const plan::GraphStage& stage = partition_.stages[band];
    return "stage " + std::to_string(band) + ": " + duration_text(stage.seconds) + ", " +
           bytes_of(stage.memory_bytes);
  }

  void draw_bands(Svg& svg) const {
    double x = kMargin - 8;
    for (std::size_t band = 0; band < bands_.size(); ++band) {
      svg.rectangle(x, kHead - 18, edges_[band] - x, height() - kHead - 10,
                    {.stroke = "none",
                     .fill = colour_of(static_cast<int>(band), static_cast<int>(bands_.size())),
                     .opacity = 0.13});
      svg.text(x + 6, kHead - 4, heading(band), {.size = 11, .bold = true});
      if (band + 1 < bands_.size()) {
        svg.line(edges_[band], kHead - 18, edges_[band], height() - 28,
                 {.stroke = "#888888", .width = 1, .dashes = "4 3"});
        svg.text(edges_[band], height() - 14, bytes_of(partition_.stages[band].sent_bytes),
                 {.size = 11, .anchor = "middle"});
      }
      x = edges_[band];
    }
  }

  void draw_value(Svg& svg, std::size_t index) const {
    const plan::GraphValue& value = graph_.values[index];
    const Box& from = boxes_[at(value.from)];
    const double x = from.x + from.width, y = from.y + kBoxHeight / 2;
    const SvgStyle style{.stroke = "#666666", .width = 1.1};
    const double lane = top_ - 14 - kLane * buses_[index].lane;
    for (int reader : value.to) {
      const Box& to = boxes_[at(reader)];
      const double end = to.y + kBoxHeight / 2;
      if (to.column == from.column + 1) {
        const std::array<std::pair<double, double>, 2> line = {{{x, y}, {to.x, end}}};
        svg.path(line, style);
      } else {
        const std::array<std::pair<double, double>, 6> line = {{{x, y},
                                                                {x + 10, y},
                                                                {x + 14, lane},
                                                                {to.x - 14, lane},
                                                                {to.x - 10, end},
                                                                {to.x, end}}};
        svg.path(line, style);
      }
      svg.circle(to.x, end, 2.4, {.fill = "#666666"});
    }
  }

  void draw_node(Svg& svg, std::size_t index) const {
    const Box& box = boxes_[index];
    const bool split =
        std::ranges::any_of(partition_.suggestions,
                            [&](const plan::SplitAdvice& one) { return at(one.node) == index; });
    svg.rectangle(
        box.x, box.y, box.width, kBoxHeight,
        {.stroke = split ? "#d62728" : "#444444", .width = split ? 2.2 : 0.9, .fill = "#ffffff"},
        4);
    svg.text(box.x + box.width / 2, box.y + 14, graph_.nodes[index].name,
             {.size = kSize, .anchor = "middle"});
    svg.text(box.x + box.width / 2, box.y + 27, duration_text(graph_.nodes[index].seconds),
             {.size = kSize, .fill = "#777777", .anchor = "middle"});
  }

  const plan::Graph& graph_;
  const plan::GraphPartition& partition_;
  std::vector<Box> boxes_;
  std::vector<Bus> buses_;                  // one per value; lane -1: none
  std::vector<std::pair<int, int>> bands_;  // a stage's first and last column
  std::vector<double> edges_;               // where a band ends
  int rows_ = 0, lanes_ = 0;
  double top_ = 0, width_ = 0;
};

std::vector<LegendEntry> legend_of(const plan::GraphPartition& partition) {
  using Sample = LegendEntry::Sample;
  std::vector<LegendEntry> entries = {
      {Sample::Box,
       {.stroke = "#444444", .width = 0.9, .fill = "#ffffff"},
       "a block and its forward and backward time"},
      {Sample::Line, {.stroke = "#666666", .width = 1.1}, "a value, to the blocks that read it"},
      {Sample::Line,
       {.stroke = "#888888", .width = 1, .dashes = "4 3"},
       "a cut, and the bytes that cross it"}};
  if (!partition.suggestions.empty())
    entries.push_back({Sample::Box,
                       {.stroke = "#d62728", .width = 2.2, .fill = "#ffffff"},
                       "a block that should be split"});
  return entries;
}

}  // namespace

std::string svg_of(const plan::Graph& graph, const plan::GraphPartition& partition) {
  const Layout layout(graph, partition);
  const std::string text = counted(static_cast<std::int64_t>(graph.nodes.size()), "node") + " in " +
                           counted(static_cast<std::int64_t>(partition.stages.size()), "stage") +
                           ", imbalance " + fixed(100 * partition.imbalance(), 1) + " %";
  double width = std::max(layout.width(), 2 * kMargin + 1.1 * text_width(text, 16));
  for (const plan::SplitAdvice& one : partition.suggestions)
    width = std::max(width, 2 * kMargin + text_width(one.why, 11));
  const auto legend = legend_of(partition);
  const double below = layout.height() + legend_height(legend, width - 2 * kMargin);
  const double height = below + 18 * static_cast<double>(partition.suggestions.size()) + 8;
  Svg svg(width, height, text);
  svg.rectangle(0, 0, width, height, {.fill = "#ffffff"});
  svg.text(kMargin, 26, text, {.size = 16, .bold = true});
  layout.draw(svg);
  draw_legend(svg, legend, kMargin, layout.height(), width - 2 * kMargin);
  double y = below;
  for (const plan::SplitAdvice& one : partition.suggestions) {
    y += 18;
    svg.text(kMargin, y - 6, one.why, {.size = 11, .fill = "#d62728"});
  }
  return svg.finish();
}

std::string json_of(const plan::Graph& graph, const plan::GraphPartition& partition) {
  using Json = nlohmann::ordered_json;
  std::string text;
  for (std::size_t i = 0; i < partition.stages.size(); ++i) {
    const plan::GraphStage& stage = partition.stages[i];
    Json names = Json::array();
    for (int node : stage.nodes) names.push_back(escaped(graph.nodes[at(node)].name));
    text += json_line({{"event", "stage"},
                       {"stage", i},
                       {"nodes", std::move(names)},
                       {"seconds", stage.seconds},
                       {"memory_bytes", stage.memory_bytes},
                       {"sent_bytes", stage.sent_bytes}});
  }
  Json split = Json::array();
  for (const plan::SplitAdvice& one : partition.suggestions) split.push_back(escaped(one.why));
  return text + json_line({{"event", "cost"},
                           {"slowest", partition.slowest()},
                           {"imbalance", partition.imbalance()},
                           {"sent_bytes", partition.sent_bytes()},
                           {"exact", partition.exact},
                           {"split", std::move(split)}});
}

}  // namespace trireme::inline v0::show
