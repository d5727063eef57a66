#include "trireme/checkpoint/reach.h"

#include <array>
#include <cstdint>
#include <random>

#include "trireme/base/error.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::checkpoint {
namespace {

using Mark = std::array<std::uint8_t, 16>;

std::string text_of(const Mark& mark) { return {mark.begin(), mark.end()}; }

// Zeros if it cannot be written.
Mark write_mark(CheckpointFolder& folder) {
  std::random_device random;
  Mark mark;
  for (std::uint8_t& letter : mark) letter = static_cast<std::uint8_t>('a' + random() % 26);
  try {
    folder.mark(text_of(mark));
  } catch (const ResourceError&) {  // the save that follows says so
    mark.fill(0);
  }
  return mark;
}

void say(const std::vector<bool>& sees, const std::string& place) {
  std::string blind;
  for (std::size_t rank = 0; rank < sees.size(); ++rank)
    if (!sees[rank]) blind += (blind.empty() ? "" : ", ") + std::to_string(rank);
  observe::info(blind.empty()
                    ? "every rank with large shards writes them into " + place + " itself"
                    : "rank 0 writes the shards of ranks that do not see " + place + ": " + blind);
}

}  // namespace

std::optional<std::vector<bool>> ranks_that_see(Job& job, CheckpointFolder& folder,
                                                const std::string& place) {
  Mark mark{};
  if (job.rank() == 0) mark = write_mark(folder);
  const comm::OpOptions label{.label = "checkpoint.save"};
  job.world().broadcast(Buffer::of(std::span<std::uint8_t>(mark)), 0, label).wait();
  if (mark[0] == 0) return std::nullopt;
  std::array<std::uint8_t, 1> mine{job.rank() == 0 || folder.sees(text_of(mark))};
  std::vector<std::uint8_t> all(static_cast<std::size_t>(job.size()));
  job.world()
      .all_gather(Buffer::of(std::span<std::uint8_t>(mine)), Buffer::of(std::span(all)), label)
      .wait();
  const std::vector<bool> sees(all.begin(), all.end());
  if (job.rank() == 0) say(sees, place);
  return sees;
}

}  // namespace trireme::inline v0::checkpoint
