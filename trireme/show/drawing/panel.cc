#include "trireme/show/drawing/panel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/joined.h"
#include "trireme/show/drawing/picture.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

constexpr double kSize = 11;
constexpr double kRow = 34, kCell = 30, kTop = 44, kLane = 17;

constexpr int kMostWritten = 8;      // ranks whose sums are written out
constexpr double kWidestLabel = 48;  // of a cell, with more ranks than that
constexpr const char *kDone = "#e6f4e6", *kChanged = "#222222", *kSame = "#cccccc";

// The frame of a cell: dark if it changed; filled green if it has its final content.
SvgStyle frame_of(bool changed, bool done) {
  return {.stroke = changed ? kChanged : kSame,
          .width = changed ? 1.6 : 0.8,
          .fill = done ? kDone : "#ffffff"};
}

std::string frame_id(bool changed, bool done) {
  return std::string("frame") + (changed ? "-changed" : "") + (done ? "-done" : "");
}

/// A sender's line in a step: it covers rows first ... last in its lane.
struct Bus {
  int from = 0, first = 0, last = 0, lane = 0;
  std::set<int> to;
};

// Each sender's line goes into the leftmost lane that is free over its rows.
std::vector<Bus> buses_of(const Step& step) {
  std::map<int, Bus> by_sender;
  for (const Message& one : step.messages) {
    Bus& bus = by_sender[one.from];
    bus.from = one.from;
    bus.to.insert(one.to);
  }
  std::vector<Bus> buses;
  for (auto& [from, bus] : by_sender) {
    bus.first = std::min(from, *bus.to.begin());
    bus.last = std::max(from, *bus.to.rbegin());
    const auto taken = [&](const Bus& other) {
      return other.lane == bus.lane && other.first <= bus.last && bus.first <= other.last;
    };
    while (std::any_of(buses.begin(), buses.end(), taken)) ++bus.lane;
    buses.push_back(bus);
  }
  return buses;
}

}  // namespace

// Ten distinct colours (Tableau); for more ranks, hues around the circle.
std::string colour_of(int rank, int ranks) {
  static constexpr std::array<const char*, 10> kTen = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                                       "#76b7b2", "#b07aa1", "#edc948", "#9c755f",
                                                       "#ff9da7", "#7f7f7f"};
  if (ranks <= static_cast<int>(kTen.size())) return kTen[static_cast<std::size_t>(rank)];
  char text[8];
  const double hue = 6.0 * rank / ranks;
  const auto channel = [&](double shift) {
    const double at = std::fmod(hue + shift, 6.0);
    const double level = std::clamp(std::min(at, 4.0 - at), 0.0, 1.0);
    return static_cast<unsigned>(60 + 150 * level) & 0xffu;
  };
  std::snprintf(text, sizeof text, "#%02x%02x%02x", channel(2), channel(0), channel(4));
  return text;
}

Panel::Panel(const Recording& recording) : recording_(recording) {
  label_ = text_width(rank_label(recording, recording.ranks - 1), kSize) + 10;
  cell_ = text_width("chunk " + std::to_string(recording.num_chunks - 1), kSize) + 12;
  int lanes = 0;
  for (const Step& step : recording.steps) {
    for (int rank = 0; rank < recording.ranks; ++rank) {
      for (const Cell& cell : step.cells[static_cast<std::size_t>(rank)]) {
        if (!cell.empty()) contents_.try_emplace(cell, "h" + std::to_string(contents_.size()));
        cell_ = std::max(cell_, text_width(label_of(cell), kSize) + 12);
      }
      text_ = std::max(text_, text_width(sends_text(step, rank), kSize));
    }
    for (const Bus& bus : buses_of(step)) lanes = std::max(lanes, bus.lane + 1);
  }
  lanes_ = kLane * lanes + 14;
  width_ = label_ + cell_ * recording.num_chunks + lanes_ + text_ + 8;
  height_ = kTop + kRow * recording.ranks;
}

// Like text_of(), but shorter if there are many ranks.
std::string Panel::label_of(const Cell& cell) const {
  if (recording_.ranks <= kMostWritten) return text_of(cell);
  const auto run_text = [](const std::pair<int, int>& run) {
    const std::string first = std::to_string(run.first);
    return run.first == run.second ? first : first + "-" + std::to_string(run.second);
  };
  const std::string text =
      joined(cell, [&](const Parts& parts) { return joined(runs_of(parts), run_text, "+"); });
  if (text_width(text, kSize) <= kWidestLabel) return text;
  std::size_t count = 0;
  for (const Parts& parts : cell) count += parts.size();
  return std::to_string(count) + " parts";
}

bool Panel::done(int rank, int chunk, const Cell& cell) const {
  const Parts& want =
      recording_.want[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
  return !want.empty() && cell == Cell{want};
}

void Panel::define(Svg& svg, const std::vector<int>& steps) const {
  for (const bool changed : {false, true}) {
    for (const bool is_done : {false, true}) {
      svg.begin_symbol(frame_id(changed, is_done));
      svg.rectangle(0, 0, cell_ - 4, kCell, frame_of(changed, is_done), 3);
      svg.end_symbol();
    }
  }
  const double part = (cell_ - 12) / recording_.ranks;
  for (int rank = 0; rank < recording_.ranks; ++rank) {
    svg.begin_symbol("part" + std::to_string(rank));
    svg.rectangle(4 + part * rank, kCell - 8, part - 1, 5,
                  {.fill = colour_of(rank, recording_.ranks)});
    svg.end_symbol();
  }
  std::set<Cell> drawn = {{}};
  for (const int step : steps)
    for (const auto& row : recording_.steps[static_cast<std::size_t>(step)].cells)
      for (const Cell& cell : row)
        if (drawn.insert(cell).second) define_content(svg, cell, contents_.at(cell));
}

void Panel::define_content(Svg& svg, const Cell& cell, const std::string& id) const {
  svg.begin_symbol(id);
  svg.text((cell_ - 4) / 2, 16, label_of(cell), {.size = kSize, .anchor = "middle"});
  for (const Parts& parts : cell)
    for (const int rank : parts) svg.use("part" + std::to_string(rank));
  svg.end_symbol();
}

void Panel::draw_cell(Svg& svg, double x, double y, const Cell& cell, bool changed,
                      bool is_done) const {
  svg.use(frame_id(changed, is_done), x, y);
  if (!cell.empty()) svg.use(contents_.at(cell), x, y);
}

void Panel::draw_sends(Svg& svg, double x, double y, const Step& step) const {
  const auto middle = [&](int rank) { return y + kRow * rank + kCell / 2; };
  for (const Bus& bus : buses_of(step)) {
    const double lane = x + 12 + kLane * bus.lane;
    const std::string colour = colour_of(bus.from, recording_.ranks);
    svg.line(lane, middle(bus.first), lane, middle(bus.last), {.stroke = colour, .width = 1.8});
    svg.circle(lane, middle(bus.from), 3.6, {.fill = colour});
    for (int to : bus.to) {
      const std::array<std::pair<double, double>, 4> head = {{{lane, middle(to) - 4.5},
                                                              {lane - 9, middle(to)},
                                                              {lane, middle(to) + 4.5},
                                                              {lane, middle(to) - 4.5}}};
      svg.path(head, {.stroke = colour, .width = 1, .fill = colour});
    }
  }
  for (int rank = 0; rank < recording_.ranks; ++rank)
    svg.text(x + lanes_, middle(rank) + 4, sends_text(step, rank), {.size = kSize});
}

std::vector<LegendEntry> Panel::legend() const {
  using Sample = LegendEntry::Sample;
  std::vector<LegendEntry> entries = {
      {Sample::Box, frame_of(true, false), "thick frame: changed in this round"},
      {Sample::Box, frame_of(false, true), "green: as it must be in the end"},
      {Sample::Box,
       {.fill = "#4e79a7"},
       "coloured strip: whose parts the cell holds, rank 0 leftmost"},
      {Sample::Arrow, {.stroke = "#4e79a7", .width = 1.8}, "from the sender to each receiver"}};
  if (recording_.ranks > kMostWritten)
    entries.push_back({Sample::None, {}, "0-3: 0+1+2+3; 9 parts: the strip shows whose"});
  return entries;
}

void Panel::draw(Svg& svg, double x, double y, int index, std::string_view note) const {
  const auto at = static_cast<std::size_t>(index);
  const Step& step = recording_.steps[at];
  const std::string title = step_title(recording_, index);
  svg.text(x, y + 16, title, {.size = 14, .bold = true});
  if (!note.empty()) {
    svg.text(x + 1.1 * text_width(title, 14) + 12, y + 16, note,
             {.size = kSize, .fill = "#555555"});
  }
  for (int chunk = 0; chunk < recording_.num_chunks; ++chunk) {
    svg.text(x + label_ + cell_ * chunk + (cell_ - 4) / 2, y + kTop - 7,
             "chunk " + std::to_string(chunk),
             {.size = kSize, .fill = "#777777", .anchor = "middle"});
  }
  for (int rank = 0; rank < recording_.ranks; ++rank) {
    const double top = y + kTop + kRow * rank;
    svg.text(x, top + kCell / 2 + 4, rank_label(recording_, rank), {.size = kSize});
    const auto& row = step.cells[static_cast<std::size_t>(rank)];
    for (int chunk = 0; chunk < recording_.num_chunks; ++chunk) {
      const Cell& cell = row[static_cast<std::size_t>(chunk)];
      const auto& before = recording_.steps[at == 0 ? 0 : at - 1].cells;
      const bool changed =
          cell != before[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
      draw_cell(svg, x + label_ + cell_ * chunk, top, cell, changed, done(rank, chunk, cell));
    }
  }
  draw_sends(svg, x + label_ + cell_ * recording_.num_chunks, y + kTop, step);
}

}  // namespace trireme::inline v0::show
