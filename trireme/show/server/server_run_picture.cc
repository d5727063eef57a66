// Draws a lane for each worker and server, their pushes, and bars of staleness and rates.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/plot/doubling_bins.h"
#include "trireme/show/drawing/page.h"
#include "trireme/show/drawing/panel.h"
#include "trireme/show/drawing/sheet.h"
#include "trireme/show/drawing/words.h"
#include "trireme/show/server/server_run.h"

namespace trireme::inline v0::show {
namespace {

using Request = ServerRun::Request;

constexpr double kSize = 10.5, kBox = 22, kLane = 34, kMark = 8, kMarkRow = 30, kGap = 26;
constexpr double kWide = 1080;  // of the time axis
constexpr double kBarRow = 20, kBarWide = 260, kColumn = 520;

constexpr SvgStyle kComputes{.stroke = "#888888", .width = 0.6, .fill = "#9ecae1"};
constexpr SvgStyle kDropped{.stroke = "#888888", .width = 0.6, .fill = "#eeeeee", .dashes = "4 3"};
constexpr SvgStyle kExchanges{.stroke = "#888888", .width = 0.6, .fill = "#fdd0a2"};
constexpr SvgStyle kWaits{.stroke = "#888888", .width = 0.6, .fill = "#ffffff"};
constexpr const char* kFirstWorker = "#4e79a7";  // colour_of(0, ...)
constexpr SvgStyle kHatch{.stroke = "#b0b0b0", .width = 0.8};

// Parallel diagonals within a box, as one path that turns at its edges.
void hatch(Svg& svg, double x, double y, double wide, double high) {
  constexpr double kStep = 7;
  std::vector<std::pair<double, double>> points;
  bool up = true;
  for (double at = x - high + kStep; at < x + wide; at += kStep, up = !up) {
    const double left = std::max(at, x), right = std::min(at + high, x + wide);
    std::pair low{left, y + high - (left - at)}, top{right, y + high - (right - at)};
    if (!up) std::swap(low, top);
    points.push_back(low);
    points.push_back(top);
  }
  svg.path(points, kHatch);
}

class Picture {
 public:
  Picture(const ServerRun& run, Moments moments)
      : run_(run),
        moments_(std::move(moments)),
        waits_(waits_of(run)),
        scale_(kWide / run.shown),
        label_(text_width("worker 00", 11) + 12) {
    rows_.resize(static_cast<std::size_t>(run.servers));
    for (const ServerRun::Update& update : run.updates)
      if (update.time < run.shown) marks_.push_back({&update, row_of(update)});
  }

  double width() const { return label_ + kWide + 12; }
  double height() const {
    double high = kLane * run_.workers + kGap + 20;
    for (int server = 0; server < run_.servers; ++server) high += server_height(server);
    return high + bars_height();
  }

  void draw(Svg& svg, double x, double y) const {
    draw_arrows(svg, x + label_, y);
    for (int worker = 0; worker < run_.workers; ++worker) {
      svg.text(x, y + kLane * worker + 15, "worker " + std::to_string(worker), {.size = 11});
      svg.rectangle(x + label_ - 8, y + kLane * worker, 3, kBox, {.fill = colour(worker)});
    }
    for (const ServerRun::Step& step : run_.steps)
      if (step.begin < run_.shown) draw_step(svg, step, x + label_, y);
    for (const ServerWait& wait : waits_)
      if (wait.begin < run_.shown) draw_wait(svg, wait, x + label_, y);
    for (int server = 0; server < run_.servers; ++server) {
      const double top = y + server_top(server), middle = top + kMark + 4;
      svg.text(x, middle + 4, "server " + std::to_string(server), {.size = 11});
      for (std::size_t row = 0; row < rows_[static_cast<std::size_t>(server)].size(); ++row)
        svg.line(x + label_, middle + kMarkRow * static_cast<double>(row), x + label_ + kWide,
                 middle + kMarkRow * static_cast<double>(row), {.stroke = "#dddddd", .width = 0.8});
    }
    for (const Mark& mark : marks_) draw_mark(svg, mark, x + label_, y);
    const double axis = y + server_top(run_.servers) + 4;
    draw_axis(svg, x + label_, axis);
    moments_.draw(svg, x + label_, scale_, y - 4, axis - 4);
    draw_bars(svg, x, axis + 44);
  }

 private:
  struct Mark {
    const ServerRun::Update* update;
    std::size_t row;
  };

  std::string colour(int worker) const {
    return worker < 0 ? "#444444" : colour_of(worker, run_.workers);
  }
  // The first row of a server in which the mark overlaps none before.
  std::size_t row_of(const ServerRun::Update& update) {
    auto& ends = rows_[static_cast<std::size_t>(update.server)];
    const double wide = mark_width(update);
    const double left = update.time * scale_ - wide / 2;
    const auto free = std::ranges::find_if(ends, [&](double end) { return end < left; });
    const auto row = static_cast<std::size_t>(free - ends.begin());
    if (free == ends.end()) ends.push_back(0);
    ends[row] = left + wide + 2;
    return row;
  }
  static double mark_width(const ServerRun::Update& update) {
    const double version = text_width(std::to_string(update.version), kSize) + 8;
    return std::max(version, text_width(std::to_string(update.staleness), 9) + 4);
  }
  double server_height(int server) const {
    const auto& rows = rows_[static_cast<std::size_t>(server)];
    return kMarkRow * static_cast<double>(std::max<std::size_t>(rows.size(), 1)) + 10;
  }
  double server_top(int server) const {
    double top = kLane * run_.workers + kGap;
    for (int other = 0; other < server; ++other) top += server_height(other);
    return top;
  }
  double middle_of(const Mark& mark) const {
    return server_top(mark.update->server) + kMark + 4 + kMarkRow * static_cast<double>(mark.row);
  }
  double clipped(double time) const { return std::min(time, run_.shown) * scale_; }

  // Lines from where a worker sends to where its gradient arrives.
  void draw_arrows(Svg& svg, double x, double y) const {
    for (const Request& request : run_.requests) {
      if (request.arrived >= run_.shown || request.kind == Request::Kind::Commit) continue;
      double end = server_top(request.server) + kMark + 4;
      for (const Mark& mark : marks_)
        if (mark.update->server == request.server && mark.update->worker == request.worker &&
            mark.update->time == request.arrived)
          end = middle_of(mark) - kMark;
      moments_.begin(svg, request.sent);
      svg.line(x + request.sent * scale_, y + kLane * request.worker + kBox,
               x + request.arrived * scale_, y + end,
               {.stroke = colour(request.worker), .width = 1.1, .opacity = 0.55});
      svg.circle(x + request.arrived * scale_, y + end, 1.8, {.fill = colour(request.worker)});
      moments_.end(svg);
    }
  }

  void draw_step(Svg& svg, const ServerRun::Step& step, double x, double y) const {
    const double top = y + kLane * step.worker, left = x + step.begin * scale_;
    const double sent = x + clipped(step.sent), end = x + clipped(step.end);
    moments_.begin(svg, step.begin);
    svg.rectangle(left, top, sent - left, kBox, step.dropped ? kDropped : kComputes);
    std::string label = "step " + std::to_string(step.number);
    if (step.dropped) label += ", too late";
    if (text_width(label, kSize) > sent - left - 2) label = std::to_string(step.number);
    if (text_width(label, kSize) <= sent - left - 2)
      svg.text((left + sent) / 2, top + 15, label, {.size = kSize, .anchor = "middle"});
    moments_.end(svg);
    if (step.sent >= run_.shown) return;
    moments_.begin(svg, step.sent);
    svg.rectangle(sent, top, end - sent, kBox, kExchanges);
    moments_.end(svg);
  }

  void draw_wait(Svg& svg, const ServerWait& wait, double x, double y) const {
    const double left = x + wait.begin * scale_, right = x + clipped(wait.end);
    const double top = y + kLane * wait.worker;
    moments_.begin(svg, wait.begin);
    svg.rectangle(left, top, right - left, kBox, kWaits);
    hatch(svg, left, top, right - left, kBox);
    const std::string by = std::to_string(wait.by);
    std::string label = wait.by < 0 ? "" : "waits for worker " + by;
    if (text_width(label, kSize) + 8 > right - left) label = wait.by < 0 ? "" : "for " + by;
    const double wide = text_width(label, kSize) + 6;
    if (!label.empty() && wide <= right - left - 2) {
      svg.rectangle((left + right - wide) / 2, top + 4, wide, kBox - 8, {.fill = "#ffffff"}, 3);
      svg.text((left + right) / 2, top + 15, label, {.size = kSize, .anchor = "middle"});
    }
    moments_.end(svg);
  }

  void draw_mark(Svg& svg, const Mark& mark, double x, double y) const {
    const ServerRun::Update& update = *mark.update;
    const double at = x + update.time * scale_, middle = y + middle_of(mark);
    const double wide = text_width(std::to_string(update.version), kSize) + 6;
    moments_.begin(svg, update.time);
    svg.rectangle(at - wide / 2, middle - kMark, wide, 2 * kMark,
                  {.stroke = colour(update.worker), .width = 1.6, .fill = "#ffffff"}, 4);
    svg.text(at, middle + 4, std::to_string(update.version), {.size = kSize, .anchor = "middle"});
    if (update.worker >= 0)
      svg.text(
          at, middle + kMark + 9, std::to_string(update.staleness),
          {.size = 9, .fill = update.staleness == 0 ? "#888888" : "#c0392b", .anchor = "middle"});
    moments_.end(svg);
  }

  void draw_axis(Svg& svg, double x, double y) const {
    const SvgText text{.size = 11, .fill = "#666666"};
    svg.line(x, y, x + kWide, y, {.stroke = "#999999", .width = 0.8});
    svg.text(x, y + 14, "0 ms", text);
    svg.text(x + kWide, y + 14, figure_text(1e3 * run_.shown) + " ms",
             {.size = 11, .fill = "#666666", .anchor = "end"});
  }

  double bars_height() const {
    const std::size_t rows = std::max(doubling_bins(staleness_of(run_)).size(), run_.rates.size());
    return 44 + 22 + kBarRow * static_cast<double>(std::max<std::size_t>(rows, 1));
  }

  struct Bar {
    std::string label, text;
    double share;
    std::string fill;
  };
  void draw_bars(Svg& svg, double x, double y) const {
    std::vector<Bar> stale, rates;
    double most = 0, fastest = 0;
    const std::vector<CountBin> bins = doubling_bins(staleness_of(run_));
    for (const CountBin& bin : bins) most = std::max(most, bin.share);
    for (const CountBin& bin : bins)
      stale.push_back({bin.label, percent_text(bin.share), bin.share / most,
                       bin.label == "0" ? "#bdbdbd" : "#e6a49b"});
    if (stale.empty()) stale.push_back({"0", "all workers have the same weights", 0, "#bdbdbd"});
    for (const auto& one : run_.rates) fastest = std::max(fastest, one.second);
    for (const auto& [rule, rate] : run_.rates)
      rates.push_back({rule, figure_text(rate), rate / fastest,
                       &rule == &run_.rates.front().first ? "#9ecae1" : "#dddddd"});
    const std::string over = " in " + figure_text(1e3 * run_.end) + " ms";
    draw_list(svg, "staleness of the gradients" + over, stale, x, y);
    draw_list(svg, "steps a second of all workers" + over, rates, x + kColumn, y);
  }
  static void draw_list(Svg& svg, const std::string& title, const std::vector<Bar>& bars, double x,
                        double y) {
    svg.text(x, y, title, {.size = 12, .bold = true});
    double label = 0;
    for (const Bar& bar : bars) label = std::max(label, text_width(bar.label, 11) + 10);
    for (const Bar& bar : bars) {
      y += kBarRow;
      svg.text(x, y, bar.label, {.size = 11});
      svg.rectangle(x + label, y - 11, std::max(kBarWide * bar.share, 0.5), 14, {.fill = bar.fill});
      svg.text(x + label + kBarWide * bar.share + 8, y, bar.text, {.size = 11, .fill = "#555555"});
    }
  }

  const ServerRun& run_;
  const Moments moments_;
  const std::vector<ServerWait> waits_;
  const double scale_, label_;
  std::vector<std::vector<double>> rows_;  // by server and row: where its last mark ends
  std::vector<Mark> marks_;
};

std::vector<LegendEntry> legend_of(const ServerRun& run) {
  using Sample = LegendEntry::Sample;
  const bool common = staleness_of(run).empty();
  std::vector<LegendEntry> entries = {
      {Sample::Box, kComputes, "a worker computes a gradient"},
      {Sample::Box, kExchanges, "it exchanges: the gradient travels, new weights come"},
      {Sample::Box,
       {.stroke = "#888888", .width = 0.6, .fill = "#e0e0e0"},
       "hatched: it waits for another worker"},
      {Sample::Line,
       {.stroke = kFirstWorker, .width = 1.1},
       "a gradient on its way, in its worker's colour"},
      {Sample::Box,
       {.stroke = common ? "#444444" : kFirstWorker, .width = 1.6, .fill = "#ffffff"},
       common ? "a server's weights have this version now"
              : "the version of the weights that a gradient made; below it the gradient's "
                "staleness"}};
  if (std::ranges::any_of(run.steps, [&](const ServerRun::Step& step) {
        return step.dropped && step.begin < run.shown;
      }))
    entries.push_back({Sample::Box, kDropped, "the step was complete without this gradient"});
  return entries;
}

Notes notes_of_waits(const ServerRun& run) {
  Notes notes = notes_of(footer(run));
  std::erase_if(notes, [](const auto& note) { return note.first != "waited"; });
  return notes;
}

}  // namespace

std::string svg_of(const ServerRun& run) {
  const Picture picture(run, Moments({}));
  return svg_of(
      Sheet{.title = run.name,
            .about = run.about,
            .legend = legend_of(run),
            .width = picture.width(),
            .height = picture.height(),
            .notes = notes_of_waits(run),
            .label = 60,
            .above = 14,
            .draw = [&](Svg& svg, double x, double y, double) { picture.draw(svg, x, y); }});
}

std::string html_of(const ServerRun& run) {
  const Picture picture(run, moments(run));
  Svg svg(picture.width() + 4, picture.height() + 8, run.name);
  picture.draw(svg, 2, 6);
  Page page{.title = run.name,
            .about = run.about,
            .step = "moment",
            .first = 1,
            .legend = legend_of(run),
            .pictures = frame_of(svg.finish()),
            .notes = footer(run),
            .data = json_of(run),
            .milliseconds = 400};
  page.captions = moment_texts(run);
  return html_of(page);
}

}  // namespace trireme::inline v0::show
