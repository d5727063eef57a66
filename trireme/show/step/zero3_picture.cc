// Draws the grids and memory bars of `trireme show zero3`.
#include <algorithm>
#include <string>
#include <vector>

#include "trireme/show/drawing/page.h"
#include "trireme/show/drawing/sheet.h"
#include "trireme/show/drawing/words.h"
#include "trireme/show/step/zero3.h"

namespace trireme::inline v0::show {
namespace {

constexpr double kLabel = 70, kRow = 20, kBars = 60, kGap = 30, kSize = 11;
constexpr const char* kUsed = "#f08c2e";
constexpr const char* kHere = "#f9d7b2";
constexpr const char* kBuckets = "#4a90d9";

std::string kilobytes(std::size_t bytes) { return std::to_string((bytes + 500) / 1000) + " kB"; }

std::string list(const char* what, const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (const std::uint32_t number : numbers) text += what + std::to_string(number) + " ";
  return text;
}

class Picture {
 public:
  explicit Picture(const Zero3Recording& recording) : recording_(recording) {
    column_ = recording.rounds > 1 ? 46 : 42;
    for (const auto& moments : recording.moments) {
      columns_ = std::max(columns_, moments.size());
      for (const Zero3Moment& moment : moments)
        for (const auto& buckets : {moment.sent, moment.added})
          column_ = std::max(column_, text_width(list("b", buckets), kSize) + 2);
    }
    for (int rank = 0; rank < recording.ranks; ++rank)
      most_ = std::max(most_, recording.peak(rank));
  }
  double width() const { return kLabel + column_ * static_cast<double>(columns_) + 4; }
  double height() const { return kRow * (recording_.blocks + 3) + kBars + 14; }

  // Draws the first `until` moments.
  void draw(Svg& svg, double x, double y, int rank, std::size_t until) const {
    svg.text(x, y + 13, "rank " + std::to_string(rank), {.size = 12, .bold = true});
    for (int block = 0; block < recording_.blocks; ++block)
      svg.text(x, y + kRow * (block + 1) + 14, "block " + std::to_string(block), {.size = kSize});
    svg.text(x, y + kRow * (recording_.blocks + 1) + 14, "sends", {.size = kSize});
    svg.text(x, y + kRow * (recording_.blocks + 2) + 14, "adds up", {.size = kSize});
    svg.text(x, y + kRow * (recording_.blocks + 3) + 22, "memory", {.size = kSize});
    svg.text(x, y + kRow * (recording_.blocks + 3) + 36, "to " + kilobytes(most_),
             {.size = kSize, .fill = "#555555"});
    const auto& moments = recording_.moments[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < std::min(until, moments.size()); ++i)
      draw_moment(svg, x + kLabel + column_ * static_cast<double>(i), y, moments[i]);
  }

 private:
  void draw_moment(Svg& svg, double x, double y, const Zero3Moment& moment) const {
    svg.text(x + column_ / 2, y + 13, moment.name, {.size = kSize, .anchor = "middle"});
    for (int block = 0; block < recording_.blocks; ++block) {
      const bool here = std::find(moment.whole.begin(), moment.whole.end(),
                                  static_cast<std::uint32_t>(block)) != moment.whole.end();
      const std::string_view fill = moment.block == block ? kUsed : here ? kHere : "#ffffff";
      svg.rectangle(x + 1, y + kRow * (block + 1) + 1, column_ - 2, kRow - 2,
                    {.stroke = "#bbbbbb", .fill = fill}, 2);
    }
    const double rows = y + kRow * (recording_.blocks + 1);
    svg.text(x + 2, rows + 14, list("b", moment.sent), {.size = kSize, .fill = kBuckets});
    svg.text(x + 2, rows + kRow + 14, list("b", moment.added), {.size = kSize, .fill = kBuckets});
    const double base = rows + 2 * kRow + kBars + 6;
    const auto high = [&](std::size_t bytes) {
      return kBars * static_cast<double>(bytes) / static_cast<double>(most_);
    };
    const double weights = high(moment.weight_bytes), buckets = high(moment.bucket_bytes);
    svg.line(x, base, x + column_, base, {.stroke = "#bbbbbb"});
    if (weights > 0) svg.rectangle(x + 1, base - weights, column_ - 2, weights, {.fill = kHere});
    if (buckets > 0)
      svg.rectangle(x + 1, base - weights - buckets, column_ - 2, buckets,
                    {.fill = kBuckets, .opacity = 0.6});
  }

  const Zero3Recording& recording_;
  double column_ = 42;
  std::size_t columns_ = 0, most_ = 1;
};

std::vector<LegendEntry> legend() {
  using Sample = LegendEntry::Sample;
  return {{Sample::Box, {.stroke = "#bbbbbb", .fill = kUsed}, "the block computes"},
          {Sample::Box,
           {.stroke = "#bbbbbb", .fill = kHere},
           "its whole weights are here or on their way"},
          {Sample::Box, {.stroke = "#bbbbbb", .fill = "#ffffff"}, "the own part alone"},
          {Sample::Box,
           {.fill = kBuckets, .opacity = 0.6},
           "memory of gradient buckets under way, above that of weights"},
          {Sample::None, {}, "F1, B1: forward and backward of block 1; b2: bucket 2"}};
}

// "B1. On rank 0 block 1 computes; whole or on their way: blocks 0, 1; sends buckets 2."
std::string caption(const Zero3Recording& recording, std::size_t index) {
  const auto& own = recording.moments[0];
  const Zero3Moment& moment = own[std::min(index, own.size() - 1)];
  std::string text = moment.name + ". On rank 0 ";
  text += moment.block >= 0 ? "block " + std::to_string(moment.block) + " computes"
                            : std::string("nothing computes any more");
  text += moment.whole.empty() ? "; no block is whole"
                               : "; whole or on their way: blocks " + listed(moment.whole);
  if (!moment.sent.empty()) text += "; sends buckets " + listed(moment.sent);
  if (!moment.added.empty()) text += "; adds up buckets " + listed(moment.added);
  return text + ".";
}

}  // namespace

std::string svg_of(const Zero3Recording& recording) {
  const Picture picture(recording);
  const int columns = picture.width() < 500 ? 2 : 1,
            rows = (recording.ranks + columns - 1) / columns;
  const double wide = picture.width() + kGap, high = picture.height() + kGap;
  std::string weights = heading(recording);
  weights = weights.substr(weights.find('\n') + 1);
  weights.pop_back();
  const auto draw = [&](Svg& svg, double x, double y, double) {
    for (int rank = 0; rank < recording.ranks; ++rank)
      picture.draw(svg, x + rank % columns * wide, y + rank / columns * high, rank,
                   ~std::size_t{0});
  };
  return svg_of(Sheet{.title = name_of(recording),
                      .about = weights,
                      .legend = legend(),
                      .width = std::max(columns * wide - kGap, 640.0),
                      .height = rows * high,
                      .below = 0,
                      .draw = draw});
}

std::string html_of(const Zero3Recording& recording) {
  const Picture picture(recording);
  std::size_t moments = 0;
  for (const auto& mine : recording.moments) moments = std::max(moments, mine.size());
  Page page{.title = name_of(recording),
            .about = "What each rank holds while a block computes.",
            .step = "moment",
            .first = 1,
            .legend = legend(),
            .notes = text_of(recording),
            .data = json_of(recording)};
  for (std::size_t moment = 0; moment < moments; ++moment) {
    Svg svg(picture.width() + 8, recording.ranks * (picture.height() + kGap),
            recording.moments[0][std::min(moment, recording.moments[0].size() - 1)].name);
    for (int rank = 0; rank < recording.ranks; ++rank)
      picture.draw(svg, 4, rank * (picture.height() + kGap), rank, moment + 1);
    page.add_step(svg, caption(recording, moment));
  }
  return html_of(page);
}

}  // namespace trireme::inline v0::show
