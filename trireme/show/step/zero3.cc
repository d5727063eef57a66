#include "trireme/show/step/zero3.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "trireme/base/words.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

std::string kilobytes(std::size_t bytes) { return fixed(static_cast<double>(bytes) / 1e3, 0); }

bool contains(const std::vector<std::uint32_t>& numbers, int number) {
  return std::ranges::find(numbers, static_cast<std::uint32_t>(number)) != numbers.end();
}

constexpr std::size_t kLabel = 12;

}  // namespace

std::size_t Zero3Recording::peak(int rank) const {
  std::size_t most = 0;
  for (const Zero3Moment& moment : moments[static_cast<std::size_t>(rank)])
    most = std::max(most, moment.weight_bytes + moment.bucket_bytes);
  return most;
}

std::string name_of(const Zero3Recording& recording) {
  return "ZeRO-3 of " + std::to_string(recording.blocks) + " blocks on " +
         std::to_string(recording.ranks) + " ranks, " +
         counted(recording.rounds, "micro-batch", "micro-batches") + " each";
}

std::string heading(const Zero3Recording& recording) {
  return name_of(recording) + "\nweights: " + kilobytes(recording.block_bytes) + " kB a block, " +
         kilobytes(recording.model_bytes) + " kB in all, of which a rank keeps " +
         kilobytes(recording.own_bytes) + " kB\n";
}

std::string grid(const Zero3Recording& recording, int rank, std::size_t moments) {
  const auto& all = recording.moments[static_cast<std::size_t>(rank)];
  const std::span<const Zero3Moment> mine(all.data(), std::min(moments, all.size()));
  const auto buckets = [](const std::vector<std::uint32_t>& some) { return listed(some, ","); };
  // Most columns are equally wide; one with many buckets is as wide as they are.
  const std::size_t usual = recording.rounds > 1 ? 6 : 5;
  std::vector<std::size_t> widths;
  for (const Zero3Moment& moment : mine)
    widths.push_back(
        std::max({usual, buckets(moment.sent).size() + 1, buckets(moment.added).size() + 1}));
  const auto row = [&](const std::string& label, auto cell) {
    std::string text = padded(label, kLabel);
    for (std::size_t i = 0; i < mine.size(); ++i) text += padded(cell(mine[i]), widths[i]);
    return line_of(text);
  };
  std::string text = row("rank " + std::to_string(rank), [](const auto& m) { return m.name; });
  for (int block = 0; block < recording.blocks; ++block)
    text += row("block " + std::to_string(block), [&](const Zero3Moment& moment) -> std::string {
      if (moment.block == block) return "##";
      return contains(moment.whole, block) ? "==" : ".";
    });
  text += row("sends", [&](const auto& m) { return buckets(m.sent); });
  text += row("adds up", [&](const auto& m) { return buckets(m.added); });
  text += row("weights kB", [](const auto& m) { return kilobytes(m.weight_bytes); });
  return text + row("buckets kB", [](const auto& m) { return kilobytes(m.bucket_bytes); });
}

std::string text_of(const Zero3Recording& recording) {
  std::string text = heading(recording) + "\n";
  text += grid(recording, 0, recording.moments[0].size());
  text +=
      "\n##: the block computes, all its weights are here; ==: all are here or on their way;\n"
      ".: the own part alone. A bucket holds a block's gradients, which its owners add up.\n"
      "At most beside the own part:";
  for (int rank = 0; rank < recording.ranks; ++rank)
    text += (rank > 0 ? ", " : " ") + std::string("rank ") + std::to_string(rank) + " " +
            kilobytes(recording.peak(rank)) + " kB";
  return text + "\n";
}

std::string json_of(const Zero3Recording& recording) {
  std::string text = json_line({{"event", "show"},
                                {"sync", "zero3"},
                                {"ranks", recording.ranks},
                                {"blocks", recording.blocks},
                                {"rounds", recording.rounds},
                                {"block_bytes", recording.block_bytes},
                                {"own_bytes", recording.own_bytes}});
  for (int rank = 0; rank < recording.ranks; ++rank) {
    for (const Zero3Moment& moment : recording.moments[static_cast<std::size_t>(rank)]) {
      text += json_line({{"event", "moment"},
                         {"rank", rank},
                         {"name", moment.name},
                         {"block", moment.block},
                         {"whole", moment.whole},
                         {"freed", moment.freed},
                         {"sent", moment.sent},
                         {"added", moment.added},
                         {"weight_bytes", moment.weight_bytes},
                         {"bucket_bytes", moment.bucket_bytes}});
    }
  }
  return text;
}

}  // namespace trireme::inline v0::show
