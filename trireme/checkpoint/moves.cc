#include "trireme/checkpoint/moves.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace trireme::inline v0::checkpoint {
namespace {

// The sources of one tensor. A sweep over its elements for one rank takes each source once.
class Sources {
 public:
  Sources(std::vector<Interval> all, int ranks) : all_(std::move(all)), ranks_(ranks) {
    std::stable_sort(all_.begin(), all_.end(),
                     [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  }

  /// The best source of element `at` for `rank`; null if there is none.
  const Interval* best(std::int64_t at, int rank) {
    if (rank != rank_ || at < at_) {  // begins a sweep
      begun_ = {};
      next_ = 0;
    }
    rank_ = rank;
    at_ = at;
    for (; next_ < all_.size() && all_[next_].begin <= at; ++next_) begun_.push(rated(all_[next_]));
    while (!begun_.empty() && begun_.top().source->end <= at) begun_.pop();
    return begun_.empty() ? nullptr : begun_.top().source;
  }

 private:
  struct Rated {
    std::tuple<bool, std::int64_t, int, std::int64_t> rate;  // the highest is the best
    const Interval* source;
    bool operator<(const Rated& other) const { return rate < other.rate; }
  };
  Rated rated(const Interval& one) const {
    return {{one.rank == rank_, one.end, -((one.rank - rank_ + ranks_) % ranks_),
             -static_cast<std::int64_t>(one.index)},
            &one};
  }

  std::vector<Interval> all_;  // by ascending begin
  const int ranks_;
  int rank_ = -1;
  std::int64_t at_ = 0;
  std::size_t next_ = 0;              // the first source that begins after at_
  std::priority_queue<Rated> begun_;  // those before it, without some that have ended
};

}  // namespace

std::optional<std::vector<Move>> plan_moves(const Tensors& need, const Tensors& have, int ranks) {
  std::vector<Move> moves;
  for (const auto& [key, needs] : need) {
    const auto found = have.find(key);
    if (found == have.end()) return std::nullopt;
    Sources sources(found->second, ranks);
    for (const Interval& one : needs) {
      for (std::int64_t at = one.begin; at < one.end;) {
        const Interval* const from = sources.best(at, one.rank);
        if (from == nullptr) return std::nullopt;
        const std::int64_t end = std::min(from->end, one.end);
        moves.push_back({at, end, *from, one});
        at = end;
      }
    }
  }
  return moves;
}

}  // namespace trireme::inline v0::checkpoint
