#include "trireme/ps/server/sweep.h"

#include <algorithm>
#include <utility>

namespace trireme::inline v0::ps {

Sweep::Sweep(const std::vector<std::size_t>& sizes, Spread spread, std::size_t stretch)
    : spread_(std::move(spread)), stretches_(1) {
  std::size_t room = stretch;
  for (std::size_t slice = 0; slice < sizes.size(); ++slice) {
    for (std::size_t begin = 0; begin < sizes[slice];) {
      if (room == 0) stretches_.emplace_back(), room = stretch;
      const std::size_t end = std::min(begin + room, sizes[slice]);
      stretches_.back().push_back({slice, begin, end});
      // The next piece of this slice begins with a block.
      room -= std::min(room, (end - begin + kBlock - 1) / kBlock * kBlock);
      begin = end;
    }
  }
}

void Sweep::advance() {
  for (const Piece& piece : stretches_[at_])
    spread_(piece.end - piece.begin, [&](std::size_t begin, std::size_t end) {
      for (std::size_t block = begin; block < end; block += kBlock)
        for (const UnderWay& one : updates_)
          one.update(piece.slice, piece.begin + block, piece.begin + std::min(block + kBlock, end));
    });
  at_ = (at_ + 1) % stretches_.size();
  for (UnderWay& one : updates_) --one.left;
  for (; under_way() && updates_.front().left == 0; ++completed_) updates_.pop_front();
}

}  // namespace trireme::inline v0::ps
