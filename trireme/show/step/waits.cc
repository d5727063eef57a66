// Draws who waits for whom.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "trireme/show/collective/verify.h"

namespace trireme::inline v0::show {
namespace {

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

// Follows the waits from the first rank until a rank repeats or waits for nobody.
std::vector<int> path_of(const std::map<int, int>& waits_for) {
  std::vector<int> path = {waits_for.begin()->first};
  for (;;) {
    const auto next = waits_for.find(path.back());
    if (next == waits_for.end()) return path;
    const auto seen = std::find(path.begin(), path.end(), next->second);
    const bool circle = seen != path.end();
    if (circle) path.erase(path.begin(), seen);  // drop the path into the cycle
    path.push_back(next->second);
    if (circle) return path;
  }
}

}  // namespace

std::string drawing_of(const std::vector<comm::RouteError::Wait>& waits, int ranks) {
  std::string text;
  std::map<int, int> waits_for;
  for (const auto& wait : waits) waits_for[wait.rank] = wait.peer;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto wait =
        std::find_if(waits.begin(), waits.end(), [&](const auto& one) { return one.rank == rank; });
    text += rank_text(rank) + "  ";
    if (wait == waits.end()) {
      text += "has ended\n";
      continue;
    }
    const std::string chunk = "chunk " + std::to_string(wait->chunk);
    text += "round " + std::to_string(wait->round + 1) + ": waits for " + rank_text(wait->peer) +
            (wait->to_send ? " to send " : " to receive ") + chunk + "\n";
  }
  const std::vector<int> path = path_of(waits_for);
  for (const int rank : path) text += (text.ends_with('\n') ? "" : " -> ") + rank_text(rank);
  const bool circle = std::count(path.begin(), path.end(), path.back()) == 2;
  return text + (circle ? ": a circle\n" : ", which has ended\n");
}

}  // namespace trireme::inline v0::show
