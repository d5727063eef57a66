#include "trireme/show/panel.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/show/text.h"

namespace trireme {
inline namespace v0 {
namespace show {
namespace {

constexpr double kSize = 11;
constexpr double kRow = 34, kCell = 30, kTop = 44, kLane = 17;

/// A sender's line in a step: it covers rows first ... last in its lane.
struct Bus {
  int from = 0, first = 0, last = 0, lane = 0;
  std::set<int> to;
};

// One line per sender, in the leftmost lane that is free over its rows.
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

std::string rank_label(const Recording& recording, int rank) {
  std::string label = "rank " + std::to_string(rank);
  if (recording.host_of_rank.back() > 0) {
    label += ", host " + std::to_string(recording.host_of_rank[static_cast<std::size_t>(rank)]);
  }
  return label;
}

}  // namespace

// Of DejaVu Sans, the widest of the faces that a viewer may pick.
double text_width(std::string_view text, double size) {
  double width = 0;
  for (const char c : text) {
    if (c == '+') {
      width += 0.84;
    } else if (std::string_view(",.;:()i lj'").find(c) != std::string_view::npos) {
      width += 0.36;
    } else if (std::isupper(static_cast<unsigned char>(c)) || c == 'm' || c == 'w') {
      width += 0.8;
    } else {
      width += 0.637;
    }
  }
  return width * size;
}

// Ten that differ well (Tableau), then hues around the circle.
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
        cell_ = std::max(cell_, text_width(text_of(cell), kSize) + 12);
      }
      text_ = std::max(text_, text_width(sends_text(step, rank), kSize));
    }
    for (const Bus& bus : buses_of(step)) lanes = std::max(lanes, bus.lane + 1);
  }
  lanes_ = kLane * lanes + 14;
  width_ = label_ + cell_ * recording.num_chunks + lanes_ + text_ + 8;
  height_ = kTop + kRow * recording.ranks;
}

bool Panel::done(int rank, int chunk, const Cell& cell) const {
  const Parts& want =
      recording_.want[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
  return !want.empty() && cell == Cell{want};
}

void Panel::draw_cell(Svg& svg, double x, double y, const Cell& cell, bool changed,
                      bool is_done) const {
  const double wide = cell_ - 4;
  svg.rectangle(x, y, wide, kCell,
                {.stroke = changed ? "#222222" : "#cccccc",
                 .width = changed ? 1.6 : 0.8,
                 .fill = is_done ? "#e6f4e6" : "#ffffff"},
                3);
  svg.text(x + wide / 2, y + 16, text_of(cell), {.size = kSize, .anchor = "middle"});
  const double part = (wide - 8) / recording_.ranks;
  for (const Parts& parts : cell) {
    for (int rank : parts) {
      svg.rectangle(x + 4 + part * rank, y + kCell - 8, part - 1, 5,
                    {.fill = colour_of(rank, recording_.ranks)});
    }
  }
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
  for (int rank = 0; rank < recording_.ranks; ++rank) {
    svg.text(x + lanes_, middle(rank) + 4, sends_text(step, rank), {.size = kSize});
  }
}

void Panel::draw(Svg& svg, double x, double y, int index) const {
  const auto at = static_cast<std::size_t>(index);
  const Step& step = recording_.steps[at];
  svg.text(x, y + 16, step_title(recording_, index), {.size = 14, .bold = true});
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

}  // namespace show
}  // namespace v0
}  // namespace trireme
