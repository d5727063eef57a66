#include "trireme/cli/torch/exchange_curves.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "trireme/base/plot/line_plot.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/show/collective/cost.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::cli {
namespace {

constexpr std::array kSources = {"predicted", "simulated", "measured"};

std::vector<ExchangeWay> ways_of(const ExchangeCurves& curves) {
  std::vector<ExchangeWay> ways;
  for (const ExchangePoint& point : curves.points)
    if (std::none_of(ways.begin(), ways.end(),
                     [&](const ExchangeWay& way) { return name_of(way) == name_of(point.way); }))
      ways.push_back(point.way);
  return ways;
}

std::vector<std::pair<double, double>> points_of(const ExchangeCurves& curves,
                                                 const std::string& way,
                                                 const std::string& source) {
  std::vector<std::pair<double, double>> points;
  for (const ExchangePoint& point : curves.points)
    if (name_of(point.way) == way && point.source == source && point.seconds > 0)
      points.emplace_back(point.workers, 1e3 * point.seconds);
  return points;
}

std::string link_text(const plan::LinkCost& link) {
  return "links of " + duration_text(link.alpha) + " and " + show::rate_text(link.beta);
}

}  // namespace

void ExchangeCurves::add(const std::vector<ExchangeWay>& ways, const std::vector<int>& workers) {
  for (const ExchangeWay& way : ways) {
    for (const int count : workers) {
      points.push_back({way, count, "predicted", predicted_exchange(way, link, count, bytes)});
      points.push_back({way, count, "simulated", simulated_exchange(way, link, count, bytes)});
    }
  }
}

std::string ExchangeCurves::to_json() const {
  std::string text = show::json_line({{"event", "link"},
                                      {"latency_seconds", link.alpha},
                                      {"seconds_per_byte", link.beta},
                                      {"bytes", bytes}});
  for (const ExchangePoint& point : points) {
    nlohmann::ordered_json line = {{"event", "exchange"}, {"workers", point.workers}};
    if (point.way.servers > 0)
      line["servers"] = point.way.servers;
    else
      line["all_reduce"] = point.way.all_reduce;
    line["source"] = point.source;
    line["seconds"] = point.seconds;
    text += show::json_line(line);
  }
  return text;
}

ExchangeCurves ExchangeCurves::measured_in(std::string_view json, const std::string& path) {
  ExchangeCurves curves;
  std::istringstream lines{std::string(json)};
  bool has_link = false;
  try {
    for (std::string line; std::getline(lines, line);) {
      const auto event = nlohmann::json::parse(line);
      if (event.at("event") == "link") {
        curves.link = {event.at("latency_seconds"), event.at("seconds_per_byte"), 0};
        curves.bytes = event.at("bytes");
        has_link = curves.link.alpha >= 0 && curves.link.beta > 0 && curves.bytes > 0;
      } else if (event.at("event") == "exchange" && event.at("source") == "measured") {
        curves.points.push_back({{event.value("servers", 0), event.value("all_reduce", "")},
                                 event.at("workers"),
                                 "measured",
                                 event.at("seconds")});
      }
    }
  } catch (const nlohmann::json::exception&) {
    has_link = false;
  }
  if (has_link) return curves;
  refuse("bench server", path + " has no measured exchanges",
         "Write it by: trireme bench server --measure 1 2 4 --json.");
}

std::string ExchangeCurves::to_text() const {
  std::string text =
      "one exchange of " + size_text(bytes) + " of gradients, " + link_text(link) + "\n";
  const std::vector<ExchangeWay> ways = ways_of(*this);
  for (const std::string source : kSources) {
    std::set<int> workers;
    for (const ExchangePoint& point : points)
      if (point.source == source) workers.insert(point.workers);
    if (workers.empty()) continue;
    std::string head = "\n" + show::padded(source, 11);
    for (const ExchangeWay& way : ways) head += show::padded(name_of(way), name_of(way).size() + 2);
    text += show::line_of(head);
    for (const int count : workers) {
      std::string row = show::padded(counted(count, "worker"), 11);
      for (const ExchangeWay& way : ways) {
        std::string cell = "-";
        for (const ExchangePoint& point : points)
          if (point.source == source && point.workers == count &&
              name_of(point.way) == name_of(way) && point.seconds > 0)
            cell = duration_text(point.seconds);
        row += show::padded(cell, name_of(way).size() + 2);
      }
      text += show::line_of(row);
    }
  }
  return text;
}

std::string ExchangeCurves::draw() const {
  constexpr std::array kColours = {"#d62728", "#ff7f0e", "#bcae00", "#1f77b4",
                                   "#2ca02c", "#9467bd", "#8c564b", "#17becf"};
  const bool measures = std::any_of(points.begin(), points.end(), [](const ExchangePoint& point) {
    return point.source == "measured";
  });
  LinePlot plot{.title = "one exchange of " + size_text(bytes) + " of gradients",
                .subtitle = link_text(link) + "; circles: simulated; thin lines: the formulas" +
                            (measures ? "; pale, thick lines: measured here" : ""),
                .x_label = "workers",
                .y_label = "milliseconds",
                .curves = {},
                .references = {},
                .logarithmic = true};
  std::size_t i = 0;
  for (const ExchangeWay& way : ways_of(*this)) {
    const std::string name = name_of(way), colour = kColours[i++ % kColours.size()];
    for (auto& [source, curve] :
         {std::pair{"measured", Curve{.color = colour, .width = 7, .opacity = 0.35}},
          {"predicted", Curve{.color = colour, .width = 1}},
          {"simulated", Curve{.name = name, .color = colour, .width = 0.1, .markers = true}}}) {
      Curve drawn = curve;
      drawn.points = points_of(*this, name, source);
      if (!drawn.points.empty()) plot.curves.push_back(std::move(drawn));
    }
  }
  return trireme::draw(plot);
}

}  // namespace trireme::inline v0::cli
