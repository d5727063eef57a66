#include "trireme/comm/texts.h"

#include <cstdint>

namespace trireme::inline v0::comm {

std::vector<std::string> exchange_texts(const std::string& mine, Communicator& world,
                                        std::string_view label) {
  std::vector<std::int64_t> length{static_cast<std::int64_t>(mine.size())};
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(world.size()));
  world.all_gather(Buffer::of(std::span(length)), Buffer::of(std::span(lengths)), {.label = label})
      .wait();
  std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  std::vector<std::uint8_t> bytes(mine.begin(), mine.end()), all(total);
  world
      .all_gather_v(Buffer::of(std::span(bytes)), Buffer::of(std::span(all)), counts,
                    {.label = label})
      .wait();
  std::vector<std::string> texts;
  auto at = all.begin();
  for (const std::size_t count : counts) {
    texts.emplace_back(at, at + static_cast<std::ptrdiff_t>(count));
    at += static_cast<std::ptrdiff_t>(count);
  }
  return texts;
}

}  // namespace trireme::inline v0::comm
